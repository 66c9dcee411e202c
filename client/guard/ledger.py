"""The ledger: what left the building and what it cost, in one durable transaction each.

Nothing is sent before it is written, nothing is written that the budget does not allow, and a question that was
answered before gets the same bytes again. Whatever goes wrong here ends in LedgerError: never fail open.
"""

from __future__ import annotations

import hashlib
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from silosynth.client.guard import chain
from silosynth.client.guard.chain import Entry
from silosynth.client.guard.identity import Identity
from silosynth.client.guard.private_file import create_private_file
from silosynth.common import events
from silosynth.common.errors import LedgerError
from silosynth.common.events import Event
from silosynth.common.queries import digest
from silosynth.common.releases import Receipt, entry_hash, seal
from silosynth.protos.v1 import release_pb2

_BUSY_SECONDS = 30.0


class Step(StrEnum):
    """The instants of a commit, for tests that crash at each of them. Only from COMMITTED on is anything charged."""

    BEGUN = "begun"
    RECHECKED = "rechecked"
    WITHIN_BUDGET = "within budget"
    DRAWN = "drawn"
    SEALED = "sealed"
    INSERTED = "inserted"
    COMMITTED = "committed"


Checkpoint = Callable[[Step], None]


@dataclass(frozen=True)
class Answered:
    """A sealed release, and whether it is the stored one of an earlier answer."""

    sealed: bytes
    replayed: bool


@dataclass(frozen=True)
class Spent:
    """What was released about a dataset so far."""

    events: tuple[Event, ...]
    releases: int


class Ledger:
    """One connection, one user at a time; other processes are kept apart by SQLite's locks."""

    def __init__(self, connection: sqlite3.Connection, silo: str, identity: Identity, checkpoint: Checkpoint) -> None:
        self._connection = connection
        self._silo = silo
        self._identity = identity
        self._checkpoint = checkpoint
        self._lock = threading.Lock()

    @classmethod
    def open(cls, path: Path, silo: str, identity: Identity, checkpoint: Checkpoint = lambda step: None) -> Ledger:
        """Open and verify the ledger at `path`, or begin one where there is none."""
        try:
            if not path.exists():
                create_private_file(path, chain.blank())
            return cls(_connect(path, identity.public_key), silo, identity, checkpoint)
        except LedgerError as error:
            raise LedgerError(f"{path}: {error}: restore the newest copy of the ledger, never begin anew") from error
        except Exception as error:  # a damaged file makes SQLite's module raise more than sqlite3.Error
            raise LedgerError(f"{path}: {error}: check the file, its permissions and the space on its disk") from error

    @property
    def public_key(self) -> bytes:
        """Verifies the receipts."""
        return self._identity.public_key

    def close(self) -> None:
        """Waits for a commit under way; later calls are refused."""
        with self._lock:
            self._connection.close()

    def find(self, dataset: str, query_digest: bytes) -> bytes | None:
        """The sealed release that answered this query, byte for byte."""
        with self._lock, _refusing():
            return self._find(dataset, query_digest)

    def spent(self, dataset: str) -> Spent:
        with self._lock, _refusing():
            return self._spent(dataset)

    def commit(
        self,
        dataset: str,
        query: bytes,
        event: Event,
        check_budget: Callable[[tuple[Event, ...]], None],
        draw_payload: Callable[[], bytes],
    ) -> Answered:
        """Charge `event` and store the release it pays for, together or not at all; the release may leave after.

        `check_budget` sees what was spent before and raises if the event does not fit; `draw_payload` draws the
        noise. Neither may call the ledger.
        """
        with self._transaction():
            self._checkpoint(Step.BEGUN)
            stored = self._find(dataset, digest(query))
            if stored is not None:
                return Answered(stored, replayed=True)
            self._checkpoint(Step.RECHECKED)
            check_budget(self._spent(dataset).events)
            self._checkpoint(Step.WITHIN_BUDGET)
            payload = draw_payload()
            self._checkpoint(Step.DRAWN)
            entry = self._seal(dataset, query, event, payload)
            self._checkpoint(Step.SEALED)
            self._connection.execute("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", entry)
            self._checkpoint(Step.INSERTED)
        self._checkpoint(Step.COMMITTED)
        return Answered(entry.sealed, replayed=False)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._lock, _refusing():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")

    def _find(self, dataset: str, query_digest: bytes) -> bytes | None:
        where = "SELECT sealed FROM entries WHERE dataset = ? AND query_digest = ?"
        row = self._connection.execute(where, (dataset, query_digest)).fetchone()
        return row[0] if row else None

    def _spent(self, dataset: str) -> Spent:
        grouped = "SELECT event, count(*) FROM entries WHERE dataset = ? GROUP BY event"
        rows = self._connection.execute(grouped, (dataset,)).fetchall()
        counted = [(events.from_proto(release_pb2.Event.FromString(event)), times) for event, times in rows]
        merged = events.merge(replace(event, count=event.count * times) for event, times in counted)
        return Spent(merged, sum(times for _, times in rows))

    def _seal(self, dataset: str, query: bytes, event: Event, payload: bytes) -> Entry:
        """The next row: the receipt repeats it for the world to verify."""
        last = self._connection.execute("SELECT sequence, hash FROM entries ORDER BY sequence DESC LIMIT 1").fetchone()
        last_sequence, head = last or (0, chain.GENESIS)
        sequence, created = last_sequence + 1, datetime.now(UTC).isoformat(timespec="seconds")
        query_digest, payload_digest = digest(query), hashlib.sha256(payload).digest()
        event_bytes = event.to_proto().SerializeToString(deterministic=True)
        link = entry_hash(head, sequence, dataset, query_digest, event_bytes, payload_digest, created)
        receipt = self._identity.sign(
            Receipt(
                silo=self._silo,
                dataset=dataset,
                query_digest=query_digest,
                event=event,
                payload_digest=payload_digest,
                sequence=sequence,
                previous_hash=head,
                entry_hash=link,
                created=created,
                public_key=self._identity.public_key,
            )
        )
        sealed = seal(payload, receipt)
        return Entry(sequence, dataset, query_digest, event_bytes, created, head, link, query, sealed)


def _connect(path: Path, public_key: bytes) -> sqlite3.Connection:
    """mode=rw: SQLite itself must never create a ledger in place of one that is missing."""
    uri = f"{path.absolute().as_uri()}?mode=rw"
    with ExitStack() as on_failure:
        connection = on_failure.enter_context(
            closing(sqlite3.connect(uri, _BUSY_SECONDS, isolation_level=None, check_same_thread=False, uri=True))
        )
        for _ in chain.audit(connection, public_key):
            pass
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN IMMEDIATE")  # a ledger that cannot be written must not be served from
        connection.execute("ROLLBACK")
        on_failure.pop_all()
    return connection


@contextmanager
def _refusing() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise LedgerError(f"the ledger cannot be used: {error}: nothing was sent") from error
