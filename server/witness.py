"""The witness: how far the server has seen each silo's ledger come, in one small file that outlives runs.

A guard restored from an older copy would forget what it released; shown the head that the server kept, it notices.
A silo is known by its key. Another key under the same registration would be a ledger begun anew, its spending
forgotten: it is refused until the silo is registered anew, which gives it a new certificate.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from silosynth.common.errors import ConfigError, LedgerRolledBack, PeerRejected
from silosynth.common.heads import Head

_BUSY_SECONDS = 30.0
_SCHEMA = """
CREATE TABLE IF NOT EXISTS keys (
    silo TEXT, certificate TEXT, public_key BLOB NOT NULL, PRIMARY KEY (silo, certificate)
) STRICT;
CREATE TABLE IF NOT EXISTS heads (
    silo TEXT, public_key BLOB, sequence INTEGER NOT NULL, head BLOB NOT NULL, PRIMARY KEY (silo, public_key)
) STRICT;
"""


class Witness:
    """Safe to use from many threads and from the coordinators of several runs at once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._transaction() as connection:
            for statement in _SCHEMA.split(";"):
                connection.execute(statement)

    def recall(self, silo: str, public_key: bytes) -> Head | None:
        """The highest head seen of this silo's ledger."""
        with self._transaction() as connection:
            return _recall(connection, silo, public_key)

    def meet(self, head: Head, silo: str, certificate: str) -> None:
        """Check that `head` is of `silo`'s own ledger, the one it came with when it was registered."""
        head.verify()
        if head.silo != silo:
            raise PeerRejected(f"{silo} showed the head of the ledger of {head.silo!r}")
        with self._transaction() as connection:
            connection.execute("INSERT OR IGNORE INTO keys VALUES (?, ?, ?)", (silo, certificate, head.public_key))
            where = "SELECT public_key FROM keys WHERE silo = ? AND certificate = ?"
            known = connection.execute(where, (silo, certificate)).fetchone()[0]
        if known != head.public_key:
            raise PeerRejected(
                f"{silo} signs with another key than before: its ledger was begun anew, its spending forgotten. "
                "If the old one is truly lost, register the silo anew (`silosynth provision`) and send it the new kit"
            )

    def confirm(self, head: Head) -> None:
        """Keep a head given in answer to the one we kept; LedgerRolledBack if it is older or of another history."""
        self._keep(head, may_be_late=False)

    def note(self, head: Head) -> None:
        """Keep a head that came with a release: releases to several runs may overtake each other."""
        self._keep(head, may_be_late=True)

    def _keep(self, head: Head, may_be_late: bool) -> None:
        head.verify()
        with self._transaction() as connection:
            known = _recall(connection, head.silo, head.public_key)
            if known is None or head.sequence > known.sequence:
                row = (head.silo, head.public_key, head.sequence, head.to_bytes())
                connection.execute("INSERT OR REPLACE INTO heads VALUES (?, ?, ?, ?)", row)
                return
        if head.sequence < known.sequence and not may_be_late:
            raise LedgerRolledBack(
                f"{head.silo}'s ledger has {head.sequence} entries, we have seen {known.sequence}: it was restored "
                "from an older copy and must be brought up to date before this silo can take part"
            )
        if head.sequence == known.sequence and head.hash != known.hash:
            raise LedgerRolledBack(f"entry {head.sequence} of {head.silo}'s ledger is not the one we have seen before")

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self._path, _BUSY_SECONDS, isolation_level=None)) as connection:
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                connection.execute("COMMIT")
        except (sqlite3.Error, OSError) as error:
            raise ConfigError(f"{self._path}: cannot keep the heads of the silos' ledgers: {error}") from error


def witnessed_heads(path: Path) -> list[Head]:
    """Every head kept in the file, by silo: for readers, who must neither wait for a run nor hold it up."""
    if not path.exists():
        return []
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", _BUSY_SECONDS, uri=True)) as connection:
        rows = connection.execute("SELECT head FROM heads ORDER BY silo, sequence").fetchall()
    return [Head.from_bytes(row[0]) for row in rows]


def _recall(connection: sqlite3.Connection, silo: str, public_key: bytes) -> Head | None:
    where = "SELECT head FROM heads WHERE silo = ? AND public_key = ?"
    row = connection.execute(where, (silo, public_key)).fetchone()
    return None if row is None else Head.from_bytes(row[0])
