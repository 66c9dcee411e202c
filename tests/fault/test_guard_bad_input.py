"""Bad input to the guard: bytes that are no queries, and ledgers that are not what they were."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.guards import SCHEMA, counts_bytes, ignore_progress, open_ledger, toy_guard

from silosynth.client.guard.guard import Guard
from silosynth.client.guard.ledger import Ledger
from silosynth.common.errors import BudgetExhausted, LedgerError, PolicyDenied, QueryError
from silosynth.common.queries import Mixtures, SufficientStatistics, decode, encode
from silosynth.common.queries.base import MAX_QUERY_BYTES
from silosynth.protos.v1 import query_pb2

QUERIES = [
    counts_bytes(50.0),
    encode(
        Mixtures(
            schema=SCHEMA,
            noise_multiplier=50.0,
            mixtures=2,
            sampling_probability=0.5,
            center=0.0,
            clip=1.0,
            count_weight=1.0,
        )
    ),
    encode(
        SufficientStatistics(
            schema=SCHEMA, noise_multiplier=50.0, center=0.0, clip=1.0, class_weight=1.0, count_weight=1.0
        )
    ),
]


@pytest.fixture(scope="module")
def guard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guard]:
    with closing(open_ledger(tmp_path_factory.mktemp("silo"))) as ledger:
        yield toy_guard(ledger, max_values=10_000)


def refused_unless_query(guard: Guard, data: bytes) -> None:
    """Bytes that are no query end in QueryError, queries in an answer or a refusal; only answers are charged."""
    before = guard.budget()
    if not decodes(data):
        with pytest.raises(QueryError):
            guard.answer(data, ignore_progress)
    elif answered(guard, data):
        return
    assert guard.budget() == before


def answered(guard: Guard, query: bytes) -> bool:
    try:
        return bool(guard.answer(query, ignore_progress).sealed)
    except (PolicyDenied, BudgetExhausted):
        return False


def decodes(data: bytes) -> bool:
    try:
        return decode(data).schema == SCHEMA
    except QueryError:
        return False


@given(st.binary(max_size=200))
@example(b"")
@example(bytes(MAX_QUERY_BYTES + 1))
@settings(max_examples=200, deadline=None)
def test_random_bytes(guard: Guard, data: bytes) -> None:
    refused_unless_query(guard, data)


@pytest.mark.parametrize("query", QUERIES)
def test_truncated_queries(guard: Guard, query: bytes) -> None:
    for length in range(len(query)):
        refused_unless_query(guard, query[:length])


@given(st.sampled_from(QUERIES), st.data())
@settings(max_examples=200, deadline=None)
def test_mutated_queries(guard: Guard, query: bytes, data: st.DataObject) -> None:
    position, value = data.draw(st.integers(0, len(query) - 1)), data.draw(st.integers(0, 255))
    refused_unless_query(guard, query[:position] + bytes([value]) + query[position + 1 :])


finite_or_not = st.floats(allow_nan=True, allow_infinity=True)


@given(
    query=st.builds(
        query_pb2.Query,
        schema=st.just(SCHEMA.to_proto()),
        noise_multiplier=finite_or_not,
        mixtures=st.builds(
            query_pb2.Mixtures,
            mixtures=st.integers(0, 2**32 - 1),
            sampling_probability=finite_or_not,
            center=finite_or_not,
            clip=finite_or_not,
            count_weight=finite_or_not,
        ),
    )
)
@settings(max_examples=200, deadline=None)
def test_absurd_parameters(guard: Guard, query: query_pb2.Query) -> None:
    refused_unless_query(guard, query.SerializeToString(deterministic=True))


@pytest.mark.parametrize("disguise", [lambda q: q + b"\xa0\x06\x01", lambda q: q + q, lambda q: q + b"\x52\x00"])
def test_one_question_has_one_form(guard: Guard, disguise: Callable[[bytes], bytes]) -> None:
    """Else the same question, dressed differently, would be a new one: a second draw to average with the first."""
    with pytest.raises(QueryError):
        guard.answer(disguise(counts_bytes(60.0)), ignore_progress)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a closed ledger with four entries."""
    folder = tmp_path_factory.mktemp("written")
    with closing(open_ledger(folder)) as ledger:
        guard = toy_guard(ledger)
        for noise in (50.0, 60.0, 70.0, 80.0):
            guard.answer(counts_bytes(noise), ignore_progress)
    return folder


@pytest.fixture
def copied(written: Path, tmp_path: Path) -> Path:
    return shutil.copytree(written, tmp_path / "copy")


def content(ledger: Ledger) -> object:
    answers = [toy_guard(ledger).answer(counts_bytes(noise), ignore_progress) for noise in (50.0, 60.0, 70.0, 80.0)]
    return answers, ledger.spent("default")


def test_flipped_bit_is_refused_or_harmless(copied: Path) -> None:
    """In every byte of every row it is refused; in unused space it changes nothing that the ledger says."""
    original = (copied / "ledger.db").read_bytes()
    with closing(open_ledger(copied)) as ledger:
        expected = content(ledger)
    refused = 0
    for position in random.Random(7).sample(range(len(original)), 400):
        damaged = bytearray(original)
        damaged[position] ^= 1 << position % 8
        (copied / "ledger.db").write_bytes(damaged)
        try:
            with closing(open_ledger(copied)) as ledger:
                assert content(ledger) == expected, position
        except LedgerError:
            refused += 1
    assert refused > 40


@pytest.mark.parametrize(
    "column", ["dataset", "query_digest", "event", "created", "previous_hash", "hash", "query", "sealed"]
)
def test_flipped_bit_in_any_column_is_refused(copied: Path, column: str) -> None:
    path = copied / "ledger.db"
    original = path.read_bytes()
    with closing(sqlite3.connect(path)) as outsider:
        (value,) = outsider.execute(f"SELECT CAST({column} AS BLOB) FROM entries WHERE sequence = 3").fetchone()
        (row,) = outsider.execute("SELECT sealed FROM entries WHERE sequence = 3").fetchone()
    start = original.rindex(value, 0, original.index(row) + len(row))
    for position in range(start, start + len(value)):
        damaged = bytearray(original)
        damaged[position] ^= 1 << position % 8
        path.write_bytes(damaged)
        with pytest.raises(LedgerError):
            open_ledger(copied)


REFORGED = {
    "a row changed": "UPDATE entries SET created = '2020-01-01T00:00:00+00:00' WHERE sequence = 2",
    "a row lost in the middle": "DELETE FROM entries WHERE sequence = 2",
    "the first row lost": "DELETE FROM entries WHERE sequence = 1",
    "a cheaper event": "UPDATE entries SET event = (SELECT event FROM entries WHERE sequence = 4) WHERE sequence = 1",
    "another budget's row": "UPDATE entries SET dataset = 'other' WHERE sequence = 4",
    "another release": "UPDATE entries SET sealed = (SELECT sealed FROM entries WHERE sequence = 1) WHERE sequence = 4",
    "another version": "PRAGMA user_version = 2",
    "another program's file": "PRAGMA application_id = 7",
    "a table of one's own": "CREATE TABLE more (x)",
}


@pytest.mark.parametrize("statement", REFORGED.values(), ids=REFORGED.keys())
def test_ledger_reforged_behind_the_triggers_is_refused(copied: Path, statement: str) -> None:
    with closing(sqlite3.connect(copied / "ledger.db")) as outsider:
        triggers = outsider.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            outsider.execute(f"DROP TRIGGER {name}")
        outsider.execute(statement)
        for _, sql in triggers:
            outsider.execute(sql)
        outsider.commit()
    with pytest.raises(LedgerError, match=r"restore the newest copy"):
        open_ledger(copied)


def test_missing_trigger_is_refused(copied: Path) -> None:
    with closing(sqlite3.connect(copied / "ledger.db")) as outsider:
        outsider.execute("DROP TRIGGER never_deleted")
    with pytest.raises(LedgerError, match="no ledger"):
        open_ledger(copied)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.6, 0.9])
def test_truncated_ledger_is_refused(copied: Path, share: float) -> None:
    path = copied / "ledger.db"
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    with pytest.raises(LedgerError):
        open_ledger(copied)


def test_random_file_is_refused(copied: Path) -> None:
    (copied / "ledger.db").write_bytes(random.Random(3).randbytes(20_000))
    with pytest.raises(LedgerError):
        open_ledger(copied)
