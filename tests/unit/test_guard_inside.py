"""What a silo answers to itself: charged and drawn once each, consented to as one, resumed after any interruption."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.guards import DELTA, CountedMechanism, ignore_progress, open_ledger
from support.local_images import BACKBONE, FILE, counting, image_guard, local_query, of_more
from support.moments import moments_query
from support.toy_images import TOY

from silosynth.client.guard.decisions import Decisions
from silosynth.client.guard.guard import Guard
from silosynth.client.guard.inspection import Inspection
from silosynth.client.guard.ledger import Ledger, Step
from silosynth.client.guard.mechanism import Bench, Mechanism, nobody
from silosynth.client.mechanisms import MECHANISMS
from silosynth.common import accounting
from silosynth.common.errors import (
    BudgetExhausted,
    ConsentPending,
    LedgerError,
    PolicyDenied,
    QueryError,
    SilosynthError,
    SiloUnavailable,
)
from silosynth.common.events import PostProcessing, SampledGaussian
from silosynth.common.queries import ClassCounts, LocalSynthesis, Mixtures, Query, decode, digest, encode
from silosynth.common.releases import open_release, unseal
from silosynth.common.schema import Schema
from silosynth.deploy import vault as views


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with closing(open_ledger(tmp_path)) as opened:
        yield opened


def answer(guard: Guard, query: LocalSynthesis) -> bytes:
    return guard.answer(encode(query), ignore_progress).sealed


def charges(ledger: Ledger) -> tuple[int, tuple[SampledGaussian, ...]]:
    spent = ledger.spent("default")
    return spent.releases, spent.events


def epsilon(noise_multiplier: float, count: int) -> float:
    return accounting.epsilon([SampledGaussian(noise_multiplier, count=count)], DELTA)


class Dies(Exception):
    """As a process does, at a step of its n-th commit."""


def dying(step: Step, commit: int) -> Callable[[Step], None]:
    seen = 0

    def checkpoint(reached: Step) -> None:
        nonlocal seen
        seen += reached is step
        if reached is step and seen == commit:
            raise Dies

    return checkpoint


class TestCharges:
    def test_each_answer_is_an_entry_and_what_is_made_of_them_adds_nothing(self, ledger: Ledger) -> None:
        guard, query = image_guard(ledger, epsilon=2.0), local_query(8.0, stages=2)
        values, receipt = open_release(query, answer(guard, query))
        assert values.shape == (query.layout().size,)
        assert charges(ledger) == (3, (SampledGaussian(8.0, count=2),))
        assert guard.budget().epsilon_spent == epsilon(8.0, 2)
        assert isinstance(receipt.event, PostProcessing)
        assert receipt.event.cost == query.event()
        assert accounting.epsilon([query.event()], DELTA) == pytest.approx(epsilon(8.0, 2))
        assert len(receipt.event.sources) == 2

    def test_asked_twice_the_same_bytes_one_charge(self, ledger: Ledger) -> None:
        guard, query = image_guard(ledger), local_query()
        first, second = (guard.answer(encode(query), ignore_progress) for _ in range(2))
        assert first.sealed == second.sealed
        assert (first.replayed, second.replayed) == (False, True)
        assert charges(ledger) == (2, (SampledGaussian(8.0),))

    def test_more_images_of_the_same_statistics_are_free(self, ledger: Ledger) -> None:
        guard = image_guard(ledger, epsilon=epsilon(8.0, 1) * 1.01)
        few, many = (open_release(query, answer(guard, query))[1].event for query in (local_query(), MORE))
        assert charges(ledger) == (3, (SampledGaussian(8.0),))
        assert few == many

    def test_of_two_stages_only_the_first_is_shared_with_more_images(self, ledger: Ledger) -> None:
        guard, query = image_guard(ledger, epsilon=3.0), local_query(stages=2)
        answer(guard, query)
        answer(guard, of_more(query, 5))
        assert charges(ledger) == (5, (SampledGaussian(8.0, count=3),))

    def test_what_was_asked_inside_cannot_be_fetched_from_outside(self, ledger: Ledger) -> None:
        """The silo allowed images to leave, not the statistics they are made of."""
        guard, query = image_guard(ledger), local_query()
        answer(guard, query)
        for identity in query.inner_identities():
            with pytest.raises(QueryError):
                guard.answer(identity, ignore_progress)
        with pytest.raises(PolicyDenied, match="class_counts"):
            guard.answer(encode(ClassCounts(schema=TOY, noise_multiplier=8.0)), ignore_progress)

    def test_the_answer_depends_on_records_through_noisy_answers_alone(self, tmp_path: Path) -> None:
        """The noisy integers that the mechanism got are those in the ledger's entries."""
        heard: list[np.ndarray] = []

        def listening(query: LocalSynthesis, records: Any, bench: Bench) -> np.ndarray:
            def ask(inner: Any, artifacts: Any) -> np.ndarray:
                heard.append(bench.ask(inner, artifacts))
                return heard[-1]

            return counting(query, records, replace(bench, ask=ask))

        with closing(open_ledger(tmp_path)) as ledger:
            query = local_query(stages=2)
            answer(image_guard(ledger, MECHANISMS | {"local_synthesis": listening}, epsilon=2.0), query)
            inner = ClassCounts(schema=TOY, noise_multiplier=8.0)
            for identity, values in zip(query.inner_identities(), heard, strict=True):
                sealed = ledger.find("default", digest(identity))
                assert sealed is not None
                assert (open_release(inner, sealed, identity)[0] == values).all()


MORE = of_more(local_query(), 7)
COUNTS = ClassCounts(schema=TOY, noise_multiplier=8.0)
MIXTURES = Mixtures(
    schema=TOY,
    noise_multiplier=8.0,
    mixtures=1,
    sampling_probability=1.0,
    center=0.0,
    clip=1.0,
    count_weight=1.0,
)
SAMPLED = replace(MIXTURES, sampling_probability=0.5)


def rows(folder: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(folder / "ledger.db")) as database:
        return database.execute("SELECT * FROM entries ORDER BY sequence").fetchall()


class TestPolicy:
    def test_a_budget_for_all_but_the_last_answer_begins_nothing(self, ledger: Ledger) -> None:
        guard = image_guard(ledger, epsilon=epsilon(8.0, 2) * 1.001)
        with pytest.raises(BudgetExhausted, match=r"a noise multiplier of 5\.6.* instead of 4\.6.* would fit"):
            answer(guard, local_query(8.0, stages=3))
        assert charges(ledger) == (0, ())
        answer(guard, local_query(8.0, stages=2))
        assert charges(ledger)[0] == 3

    def test_a_budget_that_another_process_took_meanwhile_begins_nothing(self, tmp_path: Path) -> None:
        """The first transaction checks all that is to come, not only its own event."""
        with closing(open_ledger(tmp_path)) as one, closing(open_ledger(tmp_path)) as two:
            for_one = accounting.epsilon([SampledGaussian(5.0), SampledGaussian(8.0)], DELTA) * 1.001
            other = image_guard(two, epsilon=for_one)

            def interrupted(query: LocalSynthesis, records: Any, bench: Bench) -> np.ndarray:
                answer(other, local_query(5.0))
                return counting(query, records, bench)

            guard = image_guard(one, MECHANISMS | {"local_synthesis": interrupted}, epsilon=for_one)
            with pytest.raises(BudgetExhausted):
                answer(guard, local_query(8.0, stages=2))
            assert charges(one) == (2, (SampledGaussian(5.0),))

    def test_the_limit_for_one_query_is_on_all_its_answers(self, ledger: Ledger) -> None:
        guard = image_guard(ledger, epsilon=5.0, policy={"max_epsilon_per_query": epsilon(8.0, 1) * 1.01})
        with pytest.raises(PolicyDenied, match="above this silo's limit for one query"):
            answer(guard, local_query(8.0, stages=2))
        answer(guard, local_query(8.0))
        assert charges(ledger)[0] == 2

    def test_the_limit_for_a_period_counts_each_answer_once(self, ledger: Ledger) -> None:
        limit = epsilon(8.0, 2) * 1.01
        guard = image_guard(ledger, epsilon=5.0, policy={"max_epsilon_per_period": limit})
        answer(guard, local_query(8.0, stages=2))
        with pytest.raises(PolicyDenied, match="within 30 days"):
            answer(guard, local_query(8.0, seed=1))
        ledger.clock = lambda: datetime.now(UTC) + timedelta(days=31)
        answer(guard, local_query(8.0, seed=1))

    def test_a_backbone_that_is_not_allowed(self, ledger: Ledger) -> None:
        with pytest.raises(PolicyDenied, match="does not allow the backbone"):
            answer(image_guard(ledger, policy={"backbones": []}), local_query())
        assert charges(ledger) == (0, ())

    def test_people_approve_one_thing(self, ledger: Ledger) -> None:
        guard, query = image_guard(ledger, epsilon=2.0, consent="ask"), local_query(stages=2)
        with pytest.raises(ConsentPending):
            answer(guard, query)
        decisions = Decisions.beside(ledger.path, ledger.identity, ledger.clock)
        (request,) = decisions.waiting("default")
        assert decode(request.query) == query
        decisions.decide(request, "approved", "test")
        answer(guard, query)
        assert charges(ledger)[0] == 3
        assert decisions.waiting("default") == []

    def test_denied_by_people_nothing_is_asked(self, ledger: Ledger) -> None:
        guard, query = image_guard(ledger, consent="ask"), local_query()
        with pytest.raises(ConsentPending):
            answer(guard, query)
        decisions = Decisions.beside(ledger.path, ledger.identity, ledger.clock)
        decisions.decide(decisions.waiting("default")[0], "denied", "test")
        with pytest.raises(PolicyDenied, match="denied"):
            answer(guard, query)
        assert charges(ledger) == (0, ())


class TestInterruptions:
    @pytest.mark.parametrize("commit", [1, 2, 3])
    @pytest.mark.parametrize("step", list(Step))
    def test_it_goes_on_with_the_noise_it_had_drawn(self, tmp_path: Path, step: Step, commit: int) -> None:
        """The budget is just enough for one go: whatever was paid is not asked for again."""
        query, enough = local_query(8.0, stages=2), epsilon(8.0, 2) * 1.001
        with closing(open_ledger(tmp_path, dying(step, commit))) as ledger:
            guard = image_guard(ledger, epsilon=enough)
            with pytest.raises(SilosynthError, match="internal error"):
                answer(guard, query)
        with closing(open_ledger(tmp_path)) as ledger:
            before = rows(tmp_path)
            assert len(before) == commit - 1 + (step is Step.COMMITTED)
            counted = CountedMechanism()
            mechanisms = MECHANISMS | {"local_synthesis": counting, "class_counts": counted}
            open_release(query, answer(image_guard(ledger, mechanisms, epsilon=enough), query))
            assert rows(tmp_path)[: len(before)] == before
            assert charges(ledger) == (3, (SampledGaussian(8.0, count=2),))
            assert counted.computed.total() == max(0, 2 - len(before))

    def test_a_guard_that_stops_leaves_what_was_charged(self, ledger: Ledger) -> None:
        query = local_query(8.0, stages=2)
        guard = image_guard(ledger, epsilon=2.0)

        def stop_after_the_first(fraction: float) -> None:
            guard.stop()

        with pytest.raises(SiloUnavailable, match="stopping"):
            guard.answer(encode(query), stop_after_the_first)
        assert charges(ledger)[0] == 0
        answer(image_guard(ledger, epsilon=2.0), query)
        assert charges(ledger)[0] == 3

    def test_the_scratch_folder_lasts_until_the_answer_is_there(self, ledger: Ledger) -> None:
        left: list[Path] = []

        def writing(query: LocalSynthesis, records: Any, bench: Bench) -> np.ndarray:
            assert bench.scratch is not None
            assert bench.silo == "toy"
            bench.scratch.mkdir(parents=True, exist_ok=True)
            left.extend(bench.scratch.iterdir())
            (bench.scratch / "half").touch()
            if not left:
                raise ValueError
            return counting(query, records, bench)

        guard = image_guard(ledger, MECHANISMS | {"local_synthesis": writing})
        with pytest.raises(SilosynthError, match="internal error"):
            answer(guard, local_query())
        answer(guard, local_query())
        assert [path.name for path in left] == ["half"]
        assert not left[0].parent.exists()

    def test_other_statistics_than_were_begun_with_are_not_drawn(self, ledger: Ledger) -> None:
        """Such as by an upgrade between a kill and the next start."""

        def other(query: LocalSynthesis, records: Any, bench: Bench) -> np.ndarray:
            bench.ask(MIXTURES, {})
            raise AssertionError

        def first_only(query: LocalSynthesis, records: Any, bench: Bench) -> np.ndarray:
            bench.ask(ClassCounts(schema=TOY, noise_multiplier=8.0), {})
            raise ValueError

        query = local_query(8.0, stages=2)
        for mechanism, error in ((first_only, "internal error"), (other, "begun with other statistics")):
            with pytest.raises(SilosynthError, match=error):
                answer(image_guard(ledger, MECHANISMS | {"local_synthesis": mechanism}, epsilon=2.0), query)
        assert charges(ledger)[0] == 1


def asking(*queries: Query) -> Mechanism:
    def ask(query: LocalSynthesis, records: Any, bench: Bench) -> np.ndarray:
        for inner in queries:
            bench.ask(inner, {})
        return np.zeros(query.layout().size, dtype=np.int64)

    return ask


class TestAnnouncements:
    @pytest.mark.parametrize(
        ("asked", "charged"),
        [
            ((COUNTS, replace(COUNTS, noise_multiplier=7.9)), 1),
            ((replace(COUNTS, noise_multiplier=0.0),), 0),
            ((SAMPLED,), 0),
            ((replace(COUNTS, schema=Schema((8, 8, 1), 4)),), 0),
            ((moments_query(schema=TOY, noise_multiplier=8.0),), 0),
            ((local_query(8.0, seed=1),), 0),
            ((COUNTS, COUNTS, COUNTS), 2),
            ((COUNTS,), 1),
            ((), 0),
        ],
        ids=[
            "less noise",
            "no noise",
            "a sample",
            "other records",
            "another network",
            "one more level",
            "too many",
            "too few",
            "none",
        ],
    )
    def test_what_the_outer_query_did_not_announce_is_not_answered(
        self, ledger: Ledger, asked: tuple[Query, ...], charged: int
    ) -> None:
        guard = image_guard(ledger, MECHANISMS | {"local_synthesis": asking(*asked)}, epsilon=9.0)
        with pytest.raises(QueryError, match="announce"):
            answer(guard, local_query(8.0, stages=2))
        assert charges(ledger)[0] == charged

    def test_a_query_that_is_made_of_no_others_may_ask_nothing(self) -> None:
        with pytest.raises(QueryError, match="made of no others"):
            nobody(COUNTS, {})

    def test_artifacts_made_inside_are_seen_beside_those_of_the_shelf(self, ledger: Ledger) -> None:
        read: list[bytes] = []

        def reading(query: Any, records: Any, bench: Bench) -> np.ndarray:
            read.extend([bench.artifact("center"), bench.artifact(BACKBONE)])
            return MECHANISMS["class_counts"](query, records, bench)

        def giving(query: LocalSynthesis, records: Any, bench: Bench) -> np.ndarray:
            bench.ask(COUNTS, {"center": b"made here"})
            return np.zeros(query.layout().size, dtype=np.int64)

        answer(image_guard(ledger, MECHANISMS | {"local_synthesis": giving, "class_counts": reading}), local_query())
        assert read == [b"made here", FILE]


class TestAudit:
    def test_a_ledger_whose_entry_names_what_was_never_charged_is_refused(self, tmp_path: Path) -> None:
        with closing(open_ledger(tmp_path)) as ledger:
            _, receipt = unseal(answer(image_guard(ledger), local_query()))
            assert isinstance(receipt.event, PostProcessing)
            for number, event in enumerate(
                (
                    PostProcessing(receipt.event.cost, (b"nowhere",)),
                    PostProcessing(SampledGaussian(9.0), receipt.event.sources),
                )
            ):
                folder = tmp_path / str(number)
                shutil.copytree(tmp_path, folder, ignore=shutil.ignore_patterns("[01]"))
                with closing(open_ledger(folder)) as copy:
                    copy.commit("default", b"made up", event, lambda spent: None, lambda: b"payload")
                with pytest.raises(LedgerError, match="was made of is missing, or was charged otherwise"):
                    open_ledger(folder)

    @pytest.mark.parametrize("sources", [(), (b"a", b"a")])
    def test_sources_are_named_once_each(self, sources: tuple[bytes, ...]) -> None:
        with pytest.raises(QueryError, match="names each of them once"):
            PostProcessing(SampledGaussian(1.0), sources)

    def test_people_see_what_each_entry_cost(self, ledger: Ledger, tmp_path: Path) -> None:
        guard = image_guard(ledger, epsilon=2.0)
        answer(guard, local_query(8.0, stages=2))
        files = {"ledger": ledger.path, "key": tmp_path / "receipts.key"}
        config = guard._config
        vault = Inspection.of(config.model_copy(update={"guard": config.guard.model_copy(update=files)}))
        assert vault.spent() == vault.spent_in_period() == (SampledGaussian(8.0, count=2),)
        *inner, outer = views.audit(vault)["entries"]
        assert [entry["made_of"] for entry in inner] == [[], []]
        assert outer["made_of"] == [entry["hash"] for entry in inner]
        assert outer["event"]["noise_multiplier"] == pytest.approx(8.0 / 2**0.5)
