"""Consent, adopted terms and budget epochs: what the silo's people decide, and that nothing else decides for them."""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from support.guards import counts_bytes, ignore_progress, silo_tables, toy_guard

from silosynth.client.config import BudgetSection, PolicySection, SiloConfig
from silosynth.client.guard import decisions as decisions_module
from silosynth.client.guard.decisions import Decisions
from silosynth.client.guard.guard import Guard
from silosynth.client.guard.identity import Identity
from silosynth.client.guard.ledger import Ledger
from silosynth.client.guard.terms import Terms, differences, stricter
from silosynth.common.config import parse
from silosynth.common.errors import (
    ConfigError,
    ConsentPending,
    LedgerError,
    PolicyDenied,
    SiloUnavailable,
    VerificationFailed,
)
from silosynth.common.queries import digest

QUERY = counts_bytes(8.0)
DIGEST = digest(QUERY).hex()


class Silo:
    """A ledger, a clock to set, and the file of decisions as the silo's people see it."""

    def __init__(self, folder: Path) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.identity = Identity(Ed25519PrivateKey.generate())
        self.ledger = Ledger.open(folder / "ledger.db", "toy", self.identity, clock=lambda: self.now)
        self.decisions = Decisions.beside(self.ledger.path, self.identity, lambda: self.now)

    def guard(self, **settings: Any) -> Guard:
        return toy_guard(self.ledger, **settings)

    def decide(self, verdict: str, expires: datetime | None = None) -> None:
        self.decisions.decide(self.decisions.requests("default")[0], verdict, "tester", expires)


@pytest.fixture
def silo(tmp_path: Path) -> Iterator[Silo]:
    opened = Silo(tmp_path)
    with closing(opened.ledger):
        yield opened


def ask(guard: Guard, query: bytes = QUERY) -> bytes:
    return guard.answer(query, ignore_progress).sealed


def test_a_query_waits_until_it_is_approved(silo: Silo) -> None:
    guard = silo.guard(consent="ask")
    for _ in range(2):
        with pytest.raises(ConsentPending, match=DIGEST) as pending:
            ask(guard)
    assert pending.value.exit_code == 14
    assert [request.digest for request in silo.decisions.waiting("default")] == [DIGEST]
    assert guard.budget().releases == 0
    silo.decide("approved")
    assert silo.decisions.waiting("default") == []
    assert ask(guard) == ask(guard)
    with pytest.raises(ConsentPending):
        ask(guard, counts_bytes(8.5))


def test_a_denial_is_an_answer_and_takes_an_approval_back(silo: Silo) -> None:
    guard = silo.guard(consent="ask")
    with pytest.raises(ConsentPending):
        ask(guard)
    silo.decide("approved")
    silo.decide("denied")
    with pytest.raises(PolicyDenied, match=f"denied query {DIGEST}"):
        ask(guard)
    silo.decide("approved")
    ask(guard)


def test_an_approval_runs_out(silo: Silo) -> None:
    guard = silo.guard(consent="ask")
    with pytest.raises(ConsentPending):
        ask(guard)
    silo.decide("approved", silo.now + timedelta(days=1))
    silo.now += timedelta(days=1)
    with pytest.raises(ConsentPending):
        ask(guard)
    assert len(silo.decisions.waiting("default")) == 1
    silo.now -= timedelta(seconds=1)
    ask(guard)


def test_what_would_be_refused_anyway_is_not_queued(silo: Silo) -> None:
    guard = silo.guard(consent="ask")
    for query in (counts_bytes(0.5), b"\xff"):
        with pytest.raises(Exception, match=r"would have spent|not a query"):
            ask(guard, query)
    assert silo.decisions.requests("default") == []


def test_an_approval_for_one_dataset_says_nothing_of_another(silo: Silo) -> None:
    silo.decisions.queue("other", DIGEST, QUERY)
    silo.decisions.decide(silo.decisions.requests("other")[0], "approved", "tester")
    with pytest.raises(ConsentPending):
        ask(silo.guard(consent="ask"))


def test_only_so_many_queries_may_wait(silo: Silo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions_module, "MOST_WAITING", 2)
    guard = silo.guard(consent="ask")
    for noise, error in ((8.0, ConsentPending), (8.5, ConsentPending), (9.0, SiloUnavailable), (8.0, ConsentPending)):
        with pytest.raises(error):
            ask(guard, counts_bytes(noise))
    silo.decide("denied")
    with pytest.raises(ConsentPending):
        ask(guard, counts_bytes(9.0))


def unguarded(path: Path) -> sqlite3.Connection:
    """As one who writes to the file with other tools: no trigger holds him back."""
    connection = sqlite3.connect(path, isolation_level=None)
    for name in ("never_changed", "never_deleted", "never_replaced"):
        connection.execute(f"DROP TRIGGER {name}")
    return connection


SPLICE = f"UPDATE acts SET content = replace(content, '{DIGEST}', '{'0' * 64}')"
COPY = "INSERT INTO acts SELECT 3, content, signature FROM acts WHERE number = 2"


@pytest.mark.parametrize(
    "statement",
    [
        SPLICE,
        COPY,
        "UPDATE acts SET content = replace(content, 'denied', 'approved')",
        "DELETE FROM acts WHERE number = 1",
        "UPDATE acts SET signature = x'00'",
        "UPDATE acts SET content = 'nonsense'",
    ],
)
def test_forged_decisions_are_refused(silo: Silo, statement: str) -> None:
    guard = silo.guard(consent="ask")
    with pytest.raises(ConsentPending):
        ask(guard)
    silo.decide("denied")
    with closing(unguarded(silo.decisions.path)) as outsider:
        outsider.execute(statement)
    with pytest.raises(VerificationFailed, match="decision"):
        ask(guard)


@pytest.mark.parametrize("content", ['{"number": 1}', "[]"])
def test_signed_nonsense_is_refused(silo: Silo, content: str) -> None:
    silo.guard()
    signature = silo.identity.key.sign(b"silosynth decision v1\0" + content.encode())
    with closing(unguarded(silo.decisions.path)) as outsider:
        outsider.execute("DELETE FROM acts")
        outsider.execute("INSERT INTO acts VALUES (1, ?, ?)", (content, signature))
    with pytest.raises(VerificationFailed):
        silo.decisions.acts()


@pytest.mark.parametrize(
    "statement", ["UPDATE acts SET content = ''", "DELETE FROM acts", "INSERT OR REPLACE INTO acts VALUES (1, '', x'')"]
)
def test_decisions_are_only_added(silo: Silo, statement: str) -> None:
    silo.guard()
    with (
        closing(sqlite3.connect(silo.decisions.path)) as outsider,
        pytest.raises(sqlite3.IntegrityError, match="append-only"),
    ):
        outsider.execute(statement)


def test_unreadable_decisions_are_a_ledger_error(silo: Silo) -> None:
    silo.decisions.path.write_bytes(b"nonsense" * 1000)
    with pytest.raises(LedgerError, match="decisions cannot be read"):
        silo.guard()


def test_a_file_that_somebody_else_begins_meanwhile_is_used(silo: Silo, monkeypatch: pytest.MonkeyPatch) -> None:
    create = decisions_module.create_private_file

    def twice(path: Path, content: bytes) -> None:
        create(path, content)
        create(path, content)

    monkeypatch.setattr(decisions_module, "create_private_file", twice)
    silo.guard()
    assert [act.verdict for act in silo.decisions.acts()] == ["began"]


def terms(epsilon: float = 1.0, delta: float = 1e-5, **policy: Any) -> Terms:
    return Terms(policy=PolicySection(**policy), budget=BudgetSection(epsilon=epsilon, delta=delta))


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (terms(2.0, 1e-6), terms(1.0, 1e-5), terms(1.0, 1e-6)),
        (terms(consent="auto"), terms(consent="ask"), terms(consent="ask")),
        (terms(consent="deny"), terms(consent="ask"), terms(consent="deny")),
        (terms(mechanisms=("a", "b")), terms(mechanisms=("b", "c")), terms(mechanisms=("b",))),
        (terms(backbones=("a", "b")), terms(backbones=("b", "c")), terms(backbones=("b",))),
        (terms(max_epsilon_per_query=0.5), terms(), terms(max_epsilon_per_query=0.5)),
        (terms(max_values_per_release=7), terms(max_values_per_release=9), terms(max_values_per_release=7)),
        (
            terms(max_epsilon_per_period=0.5, period_days=3),
            terms(max_epsilon_per_period=0.7, period_days=9),
            terms(max_epsilon_per_period=0.5, period_days=9),
        ),
        (
            terms(max_epsilon_per_period=0.5, period_days=3),
            terms(period_days=99),
            terms(max_epsilon_per_period=0.5, period_days=3),
        ),
    ],
)
def test_the_stricter_terms_allow_what_both_allow(one: Terms, other: Terms, both: Terms) -> None:
    assert stricter(one, other) == both
    assert stricter(other, one) == both
    assert stricter(both, one) == both


def test_differences_are_told_in_words() -> None:
    before = terms(mechanisms=("class_counts",), max_epsilon_per_query=0.5)
    assert differences(before, before) == []
    assert differences(before, terms(2.0)) == [
        "policy.mechanisms: class_counts -> none",
        "policy.max_epsilon_per_query: 0.5 -> no limit",
        "budget.epsilon: 1.0 -> 2.0",
    ]


def test_tightening_holds_at_once_and_loosening_does_not(silo: Silo, caplog: pytest.LogCaptureFixture) -> None:
    silo.guard(epsilon=2.0)
    assert silo.guard(epsilon=1.0).budget().epsilon_total == 1.0
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        loosened = silo.guard(epsilon=3.0)
    assert loosened.budget().epsilon_total == 1.0
    assert "budget.epsilon: 1.0 -> 3.0" in caplog.text
    assert "silosynth silo adopt" in caplog.text
    assert [act.verdict for act in silo.decisions.acts()] == ["began", "tightened"]
    silo.decisions.adopt("default", Terms.of(parse(SiloConfig, silo_tables(3.0), "")), "adopted", "tester")
    assert silo.guard(epsilon=3.0).budget().epsilon_total == 3.0


def test_an_infinite_budget_survives_its_record(silo: Silo) -> None:
    silo.guard(epsilon=float("inf"))
    assert silo.guard(epsilon=float("inf")).budget().epsilon_total == float("inf")


def test_losing_the_record_does_not_loosen(silo: Silo) -> None:
    ask(silo.guard())
    silo.decisions.path.unlink()
    with pytest.raises(LedgerError, match="are missing though releases were made under them"):
        silo.guard()


def test_the_period_is_limited_and_passes(silo: Silo) -> None:
    config = parse(
        SiloConfig,
        (tables := silo_tables(2.0)) | {"policy": tables["policy"] | {"max_epsilon_per_period": 0.6, "period_days": 2}},
        "test",
    )
    guard = silo.guard(config=config)
    ask(guard)
    with pytest.raises(PolicyDenied, match=r"within 2 days, above its limit of 0\.6"):
        ask(guard, counts_bytes(8.5))
    silo.now += timedelta(days=2, seconds=1)
    ask(guard, counts_bytes(8.5))


def with_silo(**settings: Any) -> SiloConfig:
    tables = silo_tables()
    return parse(SiloConfig, tables | {"silo": tables["silo"] | settings}, "test")


def test_new_dataset_needs_a_declaration(silo: Silo) -> None:
    ask(silo.guard())
    with pytest.raises(ConfigError, match="the same people could be in 2027"):
        silo.guard(config=with_silo(dataset="2027"))
    guard = silo.guard(config=with_silo(dataset="2027", disjoint_from=["default"]))
    assert guard.budget().releases == 0
    assert list(guard.describe().disjoint_from) == ["default"]
    ask(guard)
    with pytest.raises(ConfigError, match="releases about 2027"):
        silo.guard(config=with_silo())


def test_a_dataset_is_not_disjoint_from_itself(silo: Silo) -> None:
    with pytest.raises(ConfigError, match="disjoint from itself"):
        silo.guard(config=with_silo(disjoint_from=["default"]))


def test_decisions_are_plain_and_signed(silo: Silo) -> None:
    silo.guard()
    with closing(sqlite3.connect(silo.decisions.path)) as connection:
        content = json.loads(connection.execute("SELECT content FROM acts").fetchone()[0])
    assert (content["verdict"], content["who"], content["dataset"]) == ("began", "guard", "default")
    assert content["time"] == "2026-01-01T00:00:00+00:00"
