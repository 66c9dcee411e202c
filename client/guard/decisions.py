"""What the silo's people decided, in a file beside the ledger: requests allowed or denied, terms adopted.

Acts are numbered, signed by the guard's key and only ever added, so that none can be forged, altered, moved to another
query or dataset, or played again after it was taken back. Connections are short-lived: the guard and the commands of
the silo's people use the file at the same time.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature

from silosynth.client.guard.identity import Identity
from silosynth.client.guard.ledger import timestamp
from silosynth.client.guard.private_file import create_private_file
from silosynth.client.guard.terms import Terms
from silosynth.common.config import parse
from silosynth.common.errors import LedgerError, SiloUnavailable, VerificationFailed

MOST_WAITING = 200
_BUSY_SECONDS = 30.0
_DOMAIN = b"silosynth decision v1\0"
_SCHEMA = """
PRAGMA application_id = 0x51106;
PRAGMA user_version = 1;
CREATE TABLE requests (
    dataset TEXT NOT NULL,
    digest TEXT NOT NULL,
    query BLOB NOT NULL,
    asked TEXT NOT NULL,
    PRIMARY KEY (dataset, digest)
) STRICT;
CREATE TABLE acts (
    number INTEGER PRIMARY KEY,
    content TEXT NOT NULL,
    signature BLOB NOT NULL
) STRICT;
CREATE TRIGGER never_changed BEFORE UPDATE ON acts BEGIN
    SELECT RAISE (ABORT, 'decisions are append-only');
END;
CREATE TRIGGER never_deleted BEFORE DELETE ON acts BEGIN
    SELECT RAISE (ABORT, 'decisions are append-only');
END;
-- INSERT OR REPLACE would delete without firing the trigger above.
CREATE TRIGGER never_replaced BEFORE INSERT ON acts
WHEN NEW.number IS NOT (SELECT coalesce(max(number), 0) + 1 FROM acts)
BEGIN
    SELECT RAISE (ABORT, 'decisions are append-only');
END;
"""


@dataclass(frozen=True)
class Request:
    """A query that waits, or waited, for consent."""

    dataset: str
    digest: str  # 64 hexadecimal characters, as server and dashboard show them
    query: bytes
    asked: str


@dataclass(frozen=True)
class Act:
    """One decision: `verdict` is approved or denied for a query's digest, began, tightened or adopted for terms."""

    number: int
    verdict: str
    dataset: str
    time: str
    who: str
    digest: str = ""
    expires: str = ""  # empty: never
    terms: dict[str, Any] | None = None

    def allows(self, now: datetime) -> bool:
        return self.verdict == "approved" and (not self.expires or timestamp(now) < self.expires)


class Decisions:
    """The file at `path`; one who only reads it never creates it."""

    def __init__(self, path: Path, identity: Identity, clock: Callable[[], datetime]) -> None:
        self.path = path
        self._identity = identity
        self._clock = clock

    @classmethod
    def beside(cls, ledger: Path, identity: Identity, clock: Callable[[], datetime]) -> Decisions:
        return cls(ledger.with_name(f"{ledger.name}.decisions"), identity, clock)

    def queue(self, dataset: str, digest: str, query: bytes) -> None:
        """Let a query wait for consent; asked again, it keeps its place."""
        waiting = {request.digest for request in self.waiting(dataset)}
        if digest not in waiting and len(waiting) >= MOST_WAITING:
            raise SiloUnavailable(f"{MOST_WAITING} queries wait for this silo's consent already: ask again later")
        row = (dataset, digest, query, timestamp(self._clock()))
        with self._connected() as connection:
            connection.execute("INSERT OR IGNORE INTO requests VALUES (?, ?, ?, ?)", row)

    def requests(self, dataset: str) -> list[Request]:
        """All that ever waited, oldest first."""
        rows = self._rows("SELECT * FROM requests WHERE dataset = ? ORDER BY asked, digest", (dataset,))
        return [Request(*row) for row in rows]

    def waiting(self, dataset: str) -> list[Request]:
        """Those nobody has decided on, or whose approval has run out."""
        decided = {digest for digest, act in self._verdicts(dataset).items() if not _lapsed(act, self._clock())}
        return [request for request in self.requests(dataset) if request.digest not in decided]

    def verdict(self, dataset: str, digest: str) -> Act | None:
        """The last word on a query, unless it was an approval that has run out."""
        act = self._verdicts(dataset).get(digest)
        return None if act is None or _lapsed(act, self._clock()) else act

    def decide(self, request: Request, verdict: str, who: str, expires: datetime | None = None) -> None:
        until = "" if expires is None else timestamp(expires)
        self._record(verdict=verdict, dataset=request.dataset, who=who, digest=request.digest, expires=until)

    def terms(self, dataset: str) -> Terms | None:
        """Those adopted last for a dataset."""
        adopted = [act.terms for act in self.acts() if act.dataset == dataset and act.terms is not None]
        return parse(Terms, adopted[-1], str(self.path)) if adopted else None

    def adopt(self, dataset: str, terms: Terms, verdict: str, who: str) -> None:
        self._record(verdict=verdict, dataset=dataset, who=who, terms=terms.model_dump())

    def acts(self) -> list[Act]:
        """Every decision, oldest first, each verified."""
        rows = self._rows("SELECT number, content, signature FROM acts ORDER BY number", ())
        return [self._verified(number, *row) for number, row in enumerate(rows, start=1)]

    def _verdicts(self, dataset: str) -> dict[str, Act]:
        return {act.digest: act for act in self.acts() if act.dataset == dataset and act.digest}

    def _verified(self, expected: int, number: int, content: str, signature: bytes) -> Act:
        try:
            self._identity.key.public_key().verify(signature, _DOMAIN + content.encode())
            act = Act(**json.loads(content))
        except (InvalidSignature, ValueError, TypeError) as error:
            raise VerificationFailed(f"{self.path}: decision {expected} is not signed by this silo's key") from error
        if not expected == number == act.number:
            raise VerificationFailed(f"{self.path}: decision {expected} is missing or was moved")
        return act

    def _record(self, **facts: Any) -> None:
        with self._connected() as connection:
            connection.execute("BEGIN IMMEDIATE")
            number = connection.execute("SELECT coalesce(max(number), 0) + 1 FROM acts").fetchone()[0]
            content = json.dumps({"number": number, "time": timestamp(self._clock()), **facts}, sort_keys=True)
            signature = self._identity.key.sign(_DOMAIN + content.encode())
            connection.execute("INSERT INTO acts VALUES (?, ?, ?)", (number, content, signature))
            connection.execute("COMMIT")

    def _rows(self, query: str, values: Sequence[str]) -> list[tuple[Any, ...]]:
        if not self.path.exists():
            return []
        with self._connected() as connection:
            return connection.execute(query, values).fetchall()

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        try:
            self._begin()
            uri = f"{self.path.absolute().as_uri()}?mode=rw"
            with closing(sqlite3.connect(uri, _BUSY_SECONDS, isolation_level=None, uri=True)) as connection:
                yield connection
        except (sqlite3.Error, OSError) as error:
            raise LedgerError(f"{self.path}: the silo's decisions cannot be read or written: {error}") from error

    def _begin(self) -> None:
        if not self.path.exists():
            with closing(sqlite3.connect(":memory:", isolation_level=None)) as blank, suppress(FileExistsError):
                blank.executescript(_SCHEMA)
                create_private_file(self.path, blank.serialize())


def _lapsed(act: Act, now: datetime) -> bool:
    return act.verdict == "approved" and not act.allows(now)
