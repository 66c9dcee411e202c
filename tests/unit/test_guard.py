"""The guard without its wire: answers, charges, refusals, replays."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.guards import (
    DELTA,
    SCHEMA,
    CountedMechanism,
    counts_bytes,
    counts_query,
    ignore_progress,
    open_ledger,
    silo_tables,
    toy_guard,
    toy_records,
)

from silosynth.client.config import SiloConfig
from silosynth.client.guard.ledger import Answered, Ledger
from silosynth.common import accounting
from silosynth.common.config import parse
from silosynth.common.errors import (
    BudgetExhausted,
    ConfigError,
    DataError,
    PolicyDenied,
    QueryError,
    SilosynthError,
    SiloUnavailable,
)
from silosynth.common.events import SampledGaussian
from silosynth.common.queries import ClassCounts, encode
from silosynth.common.releases import open_release
from silosynth.common.schema import Schema


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with closing(open_ledger(tmp_path)) as opened:
        yield opened


def test_release_opens_at_the_server(ledger: Ledger) -> None:
    guard = toy_guard(ledger)
    answered = guard.answer(counts_bytes(5.0), ignore_progress)
    values, receipt = open_release(counts_query(5.0), answered.sealed)
    assert values.shape == (SCHEMA.classes,)
    assert (receipt.silo, receipt.dataset, receipt.sequence) == ("toy", "default", 1)
    assert receipt.public_key == guard.describe().public_key


def test_without_noise_the_release_is_the_statistic(ledger: Ledger) -> None:
    answered = toy_guard(ledger, epsilon=math.inf).answer(counts_bytes(0.0), ignore_progress)
    values, _ = open_release(counts_query(0.0), answered.sealed)
    expected = np.bincount(toy_records().labels, minlength=SCHEMA.classes)
    assert (values * counts_query(0.0).grid() == expected).all()


def test_same_query_twice_is_charged_once(ledger: Ledger) -> None:
    counted = CountedMechanism()
    guard = toy_guard(ledger, {"class_counts": counted})
    first, second = (guard.answer(counts_bytes(5.0), ignore_progress) for _ in range(2))
    assert (first.replayed, second.replayed) == (False, True)
    assert first.sealed == second.sealed
    assert counted.computed == {counts_bytes(5.0): 1}
    status = guard.budget()
    assert status.releases == 1
    assert status.epsilon_spent == accounting.epsilon([SampledGaussian(5.0)], DELTA)


def test_over_budget_charges_nothing_and_less_still_fits(ledger: Ledger) -> None:
    guard = toy_guard(ledger, epsilon=1.0)
    guard.answer(counts_bytes(6.0), ignore_progress)
    before = guard.budget()
    with pytest.raises(BudgetExhausted, match=r"would have spent epsilon = .* of 1 .* remain.* would fit"):
        guard.answer(counts_bytes(2.0), ignore_progress)
    assert guard.budget() == before
    guard.answer(counts_bytes(8.0), ignore_progress)
    assert guard.budget().releases == 2
    assert guard.budget().epsilon_spent <= 1.0


def test_many_askers_never_overspend_and_draw_once(ledger: Ledger) -> None:
    """Eight threads ask the same and different queries; about half of the different ones fit the budget."""
    counted = CountedMechanism()
    guard = toy_guard(ledger, {"class_counts": counted}, epsilon=1.0)
    queries = [counts_bytes(8.0 + number / 8) for number in range(8)] * 4

    def ask(query: bytes) -> tuple[bytes, Answered | None]:
        try:
            return query, guard.answer(query, ignore_progress)
        except BudgetExhausted:
            return query, None

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, queries))
    answered = {(query, answer.sealed) for query, answer in answers if answer is not None}
    assert len(answered) == len({query for query, _ in answered}) == guard.budget().releases
    assert 1 < len(answered) < 8
    assert guard.budget().epsilon_spent <= 1.0
    assert all(counted.computed[query] == 1 for query, _ in answered)


def test_two_guards_on_one_ledger_never_overspend(tmp_path: Path) -> None:
    """The budget is checked again inside the ledger's transaction, where no other process can slip in between."""
    with closing(open_ledger(tmp_path)) as one, closing(open_ledger(tmp_path)) as two:
        guards = [toy_guard(one), toy_guard(two)]

        def ask(number: int) -> bool:
            try:
                return bool(guards[number % 2].answer(counts_bytes(8.0 + number / 8), ignore_progress).sealed)
            except BudgetExhausted:
                return False

        with ThreadPoolExecutor(8) as pool:
            outcomes = list(pool.map(ask, range(16)))
        assert guards[0].budget() == guards[1].budget()
        assert guards[0].budget().releases == sum(outcomes)
        assert guards[0].budget().epsilon_spent <= 1.0


def test_stored_answer_outlives_a_stricter_policy(ledger: Ledger) -> None:
    first = toy_guard(ledger).answer(counts_bytes(5.0), ignore_progress)
    strict = toy_guard(ledger, consent="deny", epsilon=1e-3)
    assert strict.answer(counts_bytes(5.0), ignore_progress) == Answered(first.sealed, replayed=True)
    with pytest.raises(PolicyDenied):
        strict.answer(counts_bytes(6.0), ignore_progress)


def test_no_policy_table_denies() -> None:
    tables = silo_tables()
    del tables["policy"]
    assert parse(SiloConfig, tables, "test").policy.consent == "deny"


def test_mechanism_not_allowed(ledger: Ledger) -> None:
    guard = toy_guard(ledger, mechanisms_allowed=["mixtures"])
    with pytest.raises(PolicyDenied, match="class_counts"):
        guard.answer(counts_bytes(5.0), ignore_progress)
    assert list(guard.describe().mechanisms) == ["mixtures"]
    assert guard.budget().releases == 0


def test_policy_must_name_known_mechanisms(ledger: Ledger) -> None:
    with pytest.raises(ConfigError, match="unknown tea_leaves"):
        toy_guard(ledger, mechanisms_allowed=["tea_leaves"])


def test_query_for_other_records_is_refused(ledger: Ledger) -> None:
    other = encode(ClassCounts(schema=Schema((5,), 3), noise_multiplier=5.0))
    with pytest.raises(QueryError, match=r"shape=\(5,\)"):
        toy_guard(ledger).answer(other, ignore_progress)


def failing(error: Exception) -> Callable[..., Any]:
    def mechanism(*_: object) -> None:
        raise error

    return mechanism


@pytest.mark.parametrize("error", [ValueError("secret 0.123456"), DataError("secret 0.123456"), MemoryError("secret")])
def test_errors_of_mechanisms_do_not_quote_records(
    ledger: Ledger, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    guard = toy_guard(ledger, {"class_counts": failing(error)})
    with caplog.at_level(logging.DEBUG), pytest.raises(SilosynthError, match="internal error") as refused:
        guard.answer(counts_bytes(5.0), ignore_progress)
    assert type(refused.value) is SilosynthError
    assert "secret" not in str(refused.value) + caplog.text
    assert f"{type(error).__name__} in mechanism ({__file__}:" in caplog.text
    assert guard.budget().releases == 0


def test_statistic_of_the_wrong_size_is_not_released(ledger: Ledger) -> None:
    mechanism = {"class_counts": lambda *_: np.zeros(SCHEMA.classes + 1, dtype=np.int64)}
    guard = toy_guard(ledger, mechanism)
    with pytest.raises(SilosynthError, match="internal error"):
        guard.answer(counts_bytes(5.0), ignore_progress)
    assert guard.budget().releases == 0


def test_stopping_ends_a_computation_and_charges_nothing(ledger: Ledger) -> None:
    guard = toy_guard(ledger)
    with pytest.raises(SiloUnavailable, match="stopping"):
        guard.answer(counts_bytes(5.0), lambda fraction: guard.stop())
    assert guard.budget().releases == 0


def test_progress_reaches_the_asker(ledger: Ledger) -> None:
    fractions: list[float] = []
    toy_guard(ledger).answer(counts_bytes(5.0), fractions.append)
    assert fractions[0] == 0.0
    assert fractions[-1] == 1.0
    assert fractions == sorted(fractions)


def test_description_holds_public_facts(ledger: Ledger) -> None:
    description = toy_guard(ledger).describe()
    assert (description.silo, description.dataset) == ("toy", "default")
    assert Schema.from_proto(description.schema) == SCHEMA
    assert description.version
