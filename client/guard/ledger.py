"""The ledger: what left the building and what it cost, in one durable transaction each.

Nothing is sent before it is written, nothing is written that the budget does not allow, and a question that was
answered before gets the same bytes again. Whatever goes wrong here ends in LedgerError: never fail open.
"""

from __future__ import annotations

import hashlib
import os
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
from silosynth.client.guard.head_file import head_path, read_head, write_head
from silosynth.client.guard.identity import Identity
from silosynth.client.guard.private_file import create_private_file
from silosynth.common import events
from silosynth.common.errors import LedgerError, LedgerRolledBack
from silosynth.common.events import Charge, Event
from silosynth.common.heads import Head
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
Clock = Callable[[], datetime]


def utc_now() -> datetime:
    return datetime.now(UTC)


def timestamp(moment: datetime) -> str:
    """As the ledger writes times: their order is that of the text."""
    return moment.isoformat(timespec="seconds")


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

    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        silo: str,
        identity: Identity,
        checkpoint: Checkpoint,
        clock: Clock,
    ) -> None:
        self.path = path
        self.identity = identity
        self.clock = clock
        self._connection = connection
        self._silo = silo
        self._checkpoint = checkpoint
        self._lock = threading.RLock()

    @classmethod
    def open(
        cls,
        path: Path,
        silo: str,
        identity: Identity,
        checkpoint: Checkpoint = lambda step: None,
        clock: Clock = utc_now,
    ) -> Ledger:
        """Open and verify the ledger at `path`, or begin one where there never was any."""
        with explained(path):
            remembered = read_head(path, identity.public_key)
            if not path.exists():
                _begin(path, remembered)
            return cls(path, _connect(path, identity.public_key, remembered), silo, identity, checkpoint, clock)

    @property
    def public_key(self) -> bytes:
        """Verifies receipts and heads."""
        return self.identity.public_key

    def head(self) -> Head:
        """The newest entry, signed."""
        with self._lock, _refusing():
            return self._head()

    def check_follows(self, head: Head) -> None:
        """LedgerRolledBack unless this ledger has the entry that `head`, one of its own earlier heads, names."""
        with self._lock, _refusing():
            chain.check_follows(self._connection, head)

    def close(self) -> None:
        """Waits for a commit under way; later calls are refused."""
        with self._lock:
            self._connection.close()

    def find(self, dataset: str, query_digest: bytes) -> bytes | None:
        """The sealed release that answered this query, byte for byte."""
        with self._lock, _refusing():
            return self._find(dataset, query_digest)

    def spent(self, dataset: str, since: datetime | None = None) -> Spent:
        with self._lock, _refusing():
            return self._spent(dataset, since)

    def datasets(self) -> set[str]:
        """Those about which anything was ever released."""
        with self._lock, _refusing():
            return {row[0] for row in self._connection.execute("SELECT DISTINCT dataset FROM entries")}

    def commit(
        self,
        dataset: str,
        query: bytes,
        event: Charge,
        check_budget: Callable[[tuple[Event, ...]], None],
        draw_payload: Callable[[], bytes],
    ) -> Answered:
        """Charge `event` and store the release it pays for, together or not at all; the release may leave after.

        `check_budget` sees what was spent before and raises if the event does not fit; it may ask the ledger more.
        `draw_payload` draws the noise.
        """
        with self._lock:
            answered = self._commit(dataset, query, event, check_budget, draw_payload)
            if not answered.replayed:
                self._checkpoint(Step.COMMITTED)
                with _refusing():
                    write_head(self.path, self._head())
        return answered

    def _commit(
        self,
        dataset: str,
        query: bytes,
        event: Charge,
        check_budget: Callable[[tuple[Event, ...]], None],
        draw_payload: Callable[[], bytes],
    ) -> Answered:
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
        return Answered(entry.sealed, replayed=False)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with _refusing():
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

    def _spent(self, dataset: str, since: datetime | None = None) -> Spent:
        query, values = "SELECT event, count(*) FROM entries WHERE dataset = ?", [dataset]
        if since is not None:
            query, values = f"{query} AND created >= ?", [dataset, timestamp(since)]
        rows = self._connection.execute(f"{query} GROUP BY event", values).fetchall()
        counted = [(events.from_proto(release_pb2.Event.FromString(event)), times) for event, times in rows]
        charged = [replace(event, count=event.count * times) for event, times in counted if isinstance(event, Event)]
        return Spent(events.merge(charged), sum(times for _, times in rows))

    def _last(self) -> tuple[int, bytes]:
        newest = "SELECT sequence, hash FROM entries ORDER BY sequence DESC LIMIT 1"
        return self._connection.execute(newest).fetchone() or (0, chain.GENESIS)

    def _head(self) -> Head:
        return self.identity.sign(Head(self._silo, *self._last(), self.public_key))

    def _seal(self, dataset: str, query: bytes, event: Charge, payload: bytes) -> Entry:
        """The next row: the receipt repeats it for the world to verify."""
        last_sequence, head = self._last()
        sequence, created = last_sequence + 1, timestamp(self.clock())
        query_digest, payload_digest = digest(query), hashlib.sha256(payload).digest()
        event_bytes = event.to_proto().SerializeToString(deterministic=True)
        link = entry_hash(head, sequence, dataset, query_digest, event_bytes, payload_digest, created)
        receipt = self.identity.sign(
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
                public_key=self.identity.public_key,
            )
        )
        sealed = seal(payload, receipt)
        return Entry(sequence, dataset, query_digest, event_bytes, created, head, link, query, sealed)


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """What goes wrong with a ledger's file, with its place and the way out."""
    try:
        yield
    except LedgerError as error:
        raise type(error)(f"{path}: {error}: restore the newest copy of the ledger, never begin anew") from error
    except Exception as error:  # a damaged file makes SQLite's module raise more than sqlite3.Error
        raise LedgerError(f"{path}: {error}: check the file, its permissions and the space on its disk") from error


def _begin(path: Path, remembered: Head | None) -> None:
    if remembered is not None:
        raise LedgerRolledBack(f"the ledger is gone, but {head_path(path).name} knows of {remembered.sequence} entries")
    create_private_file(path, chain.blank())


def _connect(path: Path, public_key: bytes, remembered: Head | None) -> sqlite3.Connection:
    """mode=rw: SQLite itself must never create a ledger in place of one that is missing.

    A file it may not write it would open all the same, for reading, and leave a log beside it that stays read-only.
    """
    if not os.access(path, os.W_OK, effective_ids=True):
        raise OSError("it may not be written")
    uri = f"{path.absolute().as_uri()}?mode=rw"
    with ExitStack() as on_failure:
        connection = on_failure.enter_context(
            closing(sqlite3.connect(uri, _BUSY_SECONDS, isolation_level=None, check_same_thread=False, uri=True))
        )
        for _ in chain.audit(connection, public_key):
            pass
        if remembered is not None:
            chain.check_follows(connection, remembered)
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
