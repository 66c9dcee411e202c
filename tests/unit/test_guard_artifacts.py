"""A guard and the public files its queries name: what is asked for, taken in, allowed and refused."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.artifacts import ARTIFACT, CONTENT, ReadingMechanism, naming
from support.guards import counts_bytes, counts_query, ignore_progress, open_ledger, silo_tables, toy_guard

from silosynth.client.config import SiloConfig
from silosynth.client.guard.guard import Guard
from silosynth.client.guard.ledger import Ledger
from silosynth.common.config import parse
from silosynth.common.errors import BudgetExhausted, ConfigError, ConsentPending, PolicyDenied, QueryError
from silosynth.common.queries.base import MAX_ARTIFACTS

QUERY = counts_bytes(5.0)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with closing(open_ledger(tmp_path)) as opened:
        yield opened


def reading_guard(ledger: Ledger, reading: ReadingMechanism | None = None, **settings: Any) -> Guard:
    return toy_guard(ledger, {"class_counts": reading or ReadingMechanism()}, **settings)


def test_a_mechanism_reads_what_was_lacking(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    naming(monkeypatch, artifacts=(ARTIFACT,))
    reading = ReadingMechanism()
    guard = reading_guard(ledger, reading)
    assert guard.lacking(QUERY) == (ARTIFACT,)
    guard.deposit(ARTIFACT, [CONTENT])
    assert guard.lacking(QUERY) == ()
    guard.answer(QUERY, ignore_progress)
    assert (reading.read, reading.devices) == ([CONTENT], ["auto"])


def test_a_query_without_artifacts_lacks_nothing(ledger: Ledger) -> None:
    assert toy_guard(ledger).lacking(QUERY) == ()


def test_without_its_artifact_a_query_is_refused_and_not_charged(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    naming(monkeypatch, artifacts=(ARTIFACT,))
    guard = reading_guard(ledger)
    with pytest.raises(QueryError, match=f"{ARTIFACT}; nothing was charged"):
        guard.answer(QUERY, ignore_progress)
    assert guard.budget().releases == 0


def test_a_stored_answer_needs_no_artifact(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    guard = toy_guard(ledger)
    stored = guard.answer(QUERY, ignore_progress).sealed
    naming(monkeypatch, artifacts=(ARTIFACT,))
    assert guard.lacking(QUERY) == ()
    assert guard.answer(QUERY, ignore_progress).sealed == stored


@pytest.mark.parametrize(
    ("settings", "refusal"),
    [({}, PolicyDenied), ({"consent": "ask"}, ConsentPending), ({"epsilon": 0.1}, BudgetExhausted)],
)
def test_of_a_query_that_is_not_allowed_nothing_is_taken_in(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], refusal: type[Exception]
) -> None:
    allowed = {"backbones": [ARTIFACT]} if settings else {}
    naming(monkeypatch, artifacts=(ARTIFACT,), backbones=(ARTIFACT,))
    guard = reading_guard(ledger, **settings, **allowed)
    with pytest.raises(refusal):
        guard.lacking(QUERY)
    with pytest.raises(PolicyDenied, match="not taken in"):
        guard.deposit(ARTIFACT, [CONTENT])


def test_an_allowed_backbone_is_taken_in(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    naming(monkeypatch, artifacts=(ARTIFACT,), backbones=(ARTIFACT,))
    guard = reading_guard(ledger, backbones=[ARTIFACT])
    assert guard.lacking(QUERY) == (ARTIFACT,)


@pytest.mark.parametrize(
    ("artifacts", "backbones", "complaint"),
    [
        (("../ledger.db",), (), "'../ledger.db' is not a SHA-256 digest"),
        ((ARTIFACT.upper(),), (), "is not a SHA-256 digest"),
        ((ARTIFACT + "\n",), (), "is not a SHA-256 digest"),
        ((), (ARTIFACT,), "not among its artifacts"),
        (tuple(hashlib.sha256(bytes([n])).hexdigest() for n in range(MAX_ARTIFACTS + 1)), (), "8 are allowed"),
    ],
)
def test_a_query_names_few_artifacts_and_by_digest(
    monkeypatch: pytest.MonkeyPatch, artifacts: tuple[str, ...], backbones: tuple[str, ...], complaint: str
) -> None:
    naming(monkeypatch, artifacts, backbones)
    with pytest.raises(QueryError, match=complaint):
        counts_query(5.0)


@pytest.mark.parametrize("device", ["auto", "cpu", "cuda", "cuda:1", "mps"])
def test_devices(device: str, ledger: Ledger) -> None:
    tables = silo_tables()
    config = parse(SiloConfig, tables | {"guard": tables["guard"] | {"device": device}}, "silo.toml")
    reading = ReadingMechanism()
    toy_guard(ledger, {**dict.fromkeys(tables["policy"]["mechanisms"], reading)}, config).answer(QUERY, ignore_progress)
    assert reading.devices == [device]


def test_an_unknown_device_is_a_config_error() -> None:
    tables = silo_tables()
    with pytest.raises(ConfigError, match=r"guard\.device"):
        parse(SiloConfig, tables | {"guard": tables["guard"] | {"device": "gpu"}}, "silo.toml")
