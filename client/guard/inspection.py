"""A look at a guard's files from outside, whether it runs or not: verifies everything, changes nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from silosynth.client.config import SiloConfig
from silosynth.client.guard import chain
from silosynth.client.guard.decisions import Decisions
from silosynth.client.guard.head_file import read_head
from silosynth.client.guard.identity import Identity, load_existing
from silosynth.client.guard.ledger import explained, timestamp, utc_now
from silosynth.client.guard.terms import Terms, stricter
from silosynth.common import events
from silosynth.common.errors import LedgerError
from silosynth.common.events import Event
from silosynth.common.releases import Receipt


@dataclass(frozen=True)
class Inspection:
    """The receipts of every release so far, and what the silo's people decided."""

    config: SiloConfig
    identity: Identity
    receipts: tuple[Receipt, ...]
    decisions: Decisions
    clock: Callable[[], datetime]

    @classmethod
    def of(cls, config: SiloConfig, clock: Callable[[], datetime] = utc_now) -> Inspection:
        identity = load_existing(config.guard.key)
        decisions = Decisions.beside(config.guard.ledger, identity, clock)
        return cls(config, identity, _receipts(config.guard.ledger, identity.public_key), decisions, clock)

    @property
    def dataset(self) -> str:
        return self.config.silo.dataset

    def spent(self) -> tuple[Event, ...]:
        return events.merge(events.charged(receipt.event for receipt in self._releases()))

    def spent_in_period(self) -> tuple[Event, ...]:
        since = timestamp(self.clock() - timedelta(days=self.terms().policy.period_days))
        recent = (receipt.event for receipt in self._releases() if receipt.created >= since)
        return events.merge(events.charged(recent))

    def terms(self) -> Terms:
        """Those the guard would start with now."""
        wanted, adopted = Terms.of(self.config), self.decisions.terms(self.dataset)
        return wanted if adopted is None else stricter(adopted, wanted)

    def _releases(self) -> list[Receipt]:
        return [receipt for receipt in self.receipts if receipt.dataset == self.dataset]


def _receipts(ledger: Path, public_key: bytes) -> tuple[Receipt, ...]:
    with explained(ledger):
        remembered = read_head(ledger, public_key)
        if not ledger.exists():
            raise LedgerError("the ledger is missing though its key exists")
        with closing(sqlite3.connect(_read_only(ledger), isolation_level=None, uri=True)) as connection:
            connection.execute("BEGIN")  # one instant of a ledger that may be in use
            receipts = tuple(chain.audit(connection, public_key))
            if remembered is not None:
                chain.check_follows(connection, remembered)
            return receipts


def _read_only(ledger: Path) -> str:
    """Without a write-ahead log nobody has the ledger open: SQLite is told so, lest it leave an empty log behind."""
    unused = not ledger.with_name(f"{ledger.name}-wal").exists()
    return f"{ledger.absolute().as_uri()}?mode=ro" + ("&immutable=1" if unused else "")
