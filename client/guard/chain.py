"""The ledger's table and the proof that nothing in it was changed.

Every row holds an event, the sealed release it paid for, and the hash of the row before it. Rows are only ever added.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from google.protobuf.message import DecodeError

from silosynth.common import events
from silosynth.common.errors import LedgerError, LedgerRolledBack, QueryError, VerificationFailed
from silosynth.common.heads import Head
from silosynth.common.queries import digest
from silosynth.common.releases import Receipt, entry_hash, unseal
from silosynth.protos.v1 import release_pb2

GENESIS = b""  # what the first row names as the hash before it

_SCHEMA = """
PRAGMA application_id = 0x51105;
PRAGMA user_version = 1;
CREATE TABLE entries (
    sequence INTEGER PRIMARY KEY,
    dataset TEXT NOT NULL,
    query_digest BLOB NOT NULL,
    event BLOB NOT NULL,
    created TEXT NOT NULL,
    previous_hash BLOB NOT NULL,
    hash BLOB NOT NULL,
    query BLOB NOT NULL,
    sealed BLOB NOT NULL,
    UNIQUE (dataset, query_digest)
) STRICT;
CREATE INDEX spending ON entries (dataset, event);
CREATE TRIGGER never_changed BEFORE UPDATE ON entries BEGIN
    SELECT RAISE (ABORT, 'the ledger is append-only');
END;
CREATE TRIGGER never_deleted BEFORE DELETE ON entries BEGIN
    SELECT RAISE (ABORT, 'the ledger is append-only');
END;
-- INSERT OR REPLACE would delete without firing the trigger above.
CREATE TRIGGER never_replaced BEFORE INSERT ON entries
WHEN NEW.sequence IS NOT (SELECT coalesce(max(sequence), 0) + 1 FROM entries)
    OR EXISTS (SELECT 1 FROM entries WHERE dataset = NEW.dataset AND query_digest = NEW.query_digest)
BEGIN
    SELECT RAISE (ABORT, 'the ledger is append-only');
END;
"""


class Entry(NamedTuple):
    """A row, column by column."""

    sequence: int
    dataset: str
    query_digest: bytes
    event: bytes
    created: str
    previous_hash: bytes
    hash: bytes
    query: bytes
    sealed: bytes


def blank() -> bytes:
    """The file of a ledger without entries."""
    connection = _blank_database()
    try:
        return connection.serialize()
    finally:
        connection.close()


def audit(connection: sqlite3.Connection, public_key: bytes) -> Iterator[Receipt]:
    """Verify the whole ledger, one row in memory at a time; its receipts, oldest first. LedgerError on any doubt."""
    _check_schema(connection)
    if connection.execute("PRAGMA integrity_check(1)").fetchone() != ("ok",):
        raise LedgerError("the database is damaged")
    head = GENESIS
    rows = connection.execute("SELECT * FROM entries ORDER BY sequence")
    for number, row in enumerate(rows, start=1):
        try:
            receipt = _verified(Entry(*row), number, head, public_key)
            _check_sources(connection, receipt)
        except (DecodeError, QueryError, VerificationFailed) as error:
            raise LedgerError(f"entry {number} does not hold: {error}") from error
        head = receipt.entry_hash
        yield receipt


def check_follows(connection: sqlite3.Connection, head: Head) -> None:
    """LedgerRolledBack unless the ledger has the entry that `head`, one of its own earlier heads, names."""
    row = connection.execute("SELECT hash FROM entries WHERE sequence = ?", (head.sequence,)).fetchone()
    if head.sequence and row is None:
        raise LedgerRolledBack(f"entry {head.sequence} was released but is missing here: this is an older copy")
    if head.sequence and row[0] != head.hash:
        raise LedgerRolledBack(f"entry {head.sequence} is not the one that was released: this copy went its own way")


def _verified(entry: Entry, number: int, head: bytes, public_key: bytes) -> Receipt:
    """The receipt of an entry, once every field has been found to be what it must be."""
    _, receipt = unseal(entry.sealed)
    query_digest = digest(entry.query)
    link = entry_hash(head, number, entry.dataset, query_digest, entry.event, receipt.payload_digest, entry.created)
    expected_entry = entry._replace(sequence=number, query_digest=query_digest, previous_hash=head, hash=link)
    expected_receipt = replace(
        receipt,
        dataset=entry.dataset,
        query_digest=query_digest,
        event=events.from_proto(release_pb2.Event.FromString(entry.event)),
        sequence=number,
        previous_hash=head,
        entry_hash=link,
        created=entry.created,
        public_key=public_key,
    )
    if (entry, receipt) != (expected_entry, expected_receipt):
        raise VerificationFailed("its fields, its hash and its receipt do not agree, or another key signed it")
    return receipt


def _check_sources(connection: sqlite3.Connection, receipt: Receipt) -> None:
    """What is said to be made of other entries is free only if these are there and were charged as it says."""
    if not isinstance(receipt.event, events.PostProcessing):
        return
    query = "SELECT event FROM entries WHERE dataset = ? AND hash = ? AND sequence < ?"
    found = [
        events.from_proto(release_pb2.Event.FromString(event))
        for source in receipt.event.sources
        for (event,) in connection.execute(query, (receipt.dataset, source, receipt.sequence))
    ]
    if len(found) != len(receipt.event.sources) or not events.within(events.charged(found), receipt.event.cost):
        raise VerificationFailed("what it was made of is missing, or was charged otherwise")


def _check_schema(connection: sqlite3.Connection) -> None:
    blank_database = _blank_database()
    try:
        if _description(connection) != _description(blank_database):
            raise LedgerError("this is no ledger, or one of another version of silosynth")
    finally:
        blank_database.close()


def _blank_database() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.executescript(_SCHEMA)
    return connection


def _description(connection: sqlite3.Connection) -> list[tuple[object, ...]]:
    numbers = [connection.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version")]
    return numbers + connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name").fetchall()
