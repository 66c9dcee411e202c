"""A run whose questions follow from what it heard, interrupted and started again with more silos: nobody pays twice."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from support.fake_federation import Courier, Identities, open_exchange
from support.fake_guard import FakeGuard

from silosynth.common.queries import ClassCounts, Query
from silosynth.common.schema import Schema
from silosynth.server.assembly import Assembly
from silosynth.server.config import FederationSettings
from silosynth.server.journal import Journal
from silosynth.server.kept_sums import KeptSums
from silosynth.server.narration import Narrator
from silosynth.server.recipes.base import Summed, drive

SILOS = ("silo-0", "silo-1", "silo-2")
SCHEMA = Schema((4, 4, 1), 3)


def curious(questions: int) -> Generator[Query, Summed, list[int]]:
    """Every question depends on all answers before it; returns how many silos gave each."""
    noise, silos = 2.0, []
    for _ in range(questions):
        answer = yield ClassCounts(schema=SCHEMA, noise_multiplier=noise)
        silos.append(answer.silos)
        noise += answer.blocks["counts"].sum()
    return silos


@pytest.fixture
def guards(tmp_path: Path) -> Iterator[list[FakeGuard]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(FakeGuard(silo, tmp_path)) for silo in SILOS]


@pytest.fixture
def identities(tmp_path: Path) -> Identities:
    return Identities(tmp_path)


def run(identities: Identities, attending: list[FakeGuard], questions: int) -> tuple[list[int], Assembly]:
    """Of the same configuration: one that is interrupted ends after fewer questions."""
    with open_exchange(identities, list(SILOS)) as exchange:
        for guard in attending:
            Courier(identities.courier(guard.silo, guard.address), exchange.address)
        settings = FederationSettings(silos=SILOS, grace_seconds=1.0 if len(attending) < len(SILOS) else 20.0)
        journal, kept = Journal(identities.folder / "assembly.jsonl"), KeptSums(identities.folder / "sums")
        assembly = Assembly(exchange, settings, journal, kept=kept)
        return drive(curious(questions), assembly.ask), assembly


def test_questions_stay_the_same_when_more_silos_come(identities: Identities, guards: list[FakeGuard]) -> None:
    _, before = run(identities, guards[:2], questions=2)
    silos, after = run(identities, guards, questions=3)
    assert after.queries[:2] == before.queries
    assert silos == [2, 3, 3], "the first sum stands, to the last one a silo that comes late is added"
    assert [guard.asked for guard in guards] == [4, 4, 2]
    asked = [receipt.silo for receipt in after.receipts]
    assert asked[:2] == [receipt.silo for receipt in before.receipts[:2]]
    assert sorted(asked) == sorted(SILOS * 2 + SILOS[:2])
    assert after.receipts[0] == before.receipts[0]


def test_it_is_told_as_a_round(identities: Identities, guards: list[FakeGuard]) -> None:
    run(identities, guards, questions=2)
    run(identities, guards, questions=3)
    narrator = Narrator()
    narrator.tell({"kind": "gathering", "silos": list(SILOS)})
    entries = [json.loads(line) for line in (identities.folder / "assembly.jsonl").read_text().splitlines()]
    told = [narrator.tell(entry) for entry in entries[4:]]
    assert told[0] == "Round 1: 3 of 3 silos had told class_counts before the run was interrupted"
    assert (told[1] or "").startswith("Round 2: asking every silo for class_counts")


def test_a_damaged_sum_is_asked_for_again(identities: Identities, guards: list[FakeGuard]) -> None:
    run(identities, guards, questions=2)
    (file,) = (identities.folder / "sums").glob("*.npz")
    for damaged in (b"", b"garbage", file.read_bytes()[:-40], file.read_bytes().replace(b"silo-0", b"silo-9")):
        file.write_bytes(damaged)
        silos, assembly = run(identities, guards, questions=1)
        assert silos == [3]
        assert sorted(receipt.silo for receipt in assembly.receipts) == list(SILOS)
