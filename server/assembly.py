"""Assembling a federation's answer: ask every silo, verify each release, collect what the recipe needs of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection

from silosynth.common.errors import ConsentPending, QuorumNotMet, SilosynthError, VerificationFailed
from silosynth.common.queries import Query, digest, encode
from silosynth.common.releases import Receipt, open_release
from silosynth.server.collecting import collection
from silosynth.server.config import FederationSettings
from silosynth.server.exchange import Exchange
from silosynth.server.journal import Journal
from silosynth.server.kept_sums import KeptSum, KeptSums
from silosynth.server.recipes.base import Ask, Step, Summed

_CONSENT_POLL_SECONDS = 5.0


class Assembly:
    """Answers a recipe's queries from the silos that attend, and keeps queries and receipts as proof."""

    def __init__(
        self,
        exchange: Exchange,
        settings: FederationSettings,
        journal: Journal,
        counted: Collection[bytes] = frozenset(),
        kept: KeptSums | None = None,
    ) -> None:
        """`counted` are hashes of ledger entries that an earlier release, which this one extends, has in it.

        `kept` is what the run summed before it was interrupted.
        """
        self.queries: list[Query] = []
        self.receipts: list[Receipt] = []
        self._exchange, self._settings, self._journal, self._counted = exchange, settings, journal, counted
        self._kept = kept or KeptSums()

    def ask(self, step: Step) -> Summed:
        asked = Ask.of(step)
        found = self._recalled(asked.query) or self._asked(asked)
        self.queries.append(asked.query)
        self.receipts += found.receipts
        return found.summed

    def _recalled(self, query: Query) -> KeptSum | None:
        found = self._kept.find(query)
        if found is not None:
            silos, identity = len(found.receipts), digest(query).hex()
            self._journal.write("recalled", mechanism=query.mechanism, digest=identity, silos=silos)
        return found

    def _asked(self, asked: Ask) -> KeptSum:
        self._kept.a_question_follows()
        query = asked.query
        self._exchange.offer(asked.artifacts)
        plan, identity = query.plan(), digest(query).hex()
        self._journal.write("asking", mechanism=query.mechanism, digest=identity, values=plan.layout.size)
        total = _Intake(query, self._exchange, self._counted)
        outcome = self._ask_until_decided(query, total)
        failures = {silo: error for silo, error in outcome.items() if error is not None}
        for silo, error in failures.items():
            self._journal.write("without", silo=silo, error=type(error).__name__, message=str(error))
        if len(total.receipts) < self._settings.quorum:
            raise _too_few(len(total.receipts), self._settings.quorum, list(failures.values()))
        self._journal.write("summed", silos=len(total.receipts), digest=identity)
        self._exchange.withdraw(query.passing_artifacts())
        found = KeptSum(total.collected.all(), total.receipts)
        self._kept.keep(query, found)
        return found

    def _ask_until_decided(self, query: Query, total: _Intake) -> dict[str, SilosynthError | None]:
        """Silos whose people have yet to decide are asked again and again, for as long as the run may wait."""
        ends = time.monotonic() + self._settings.consent_seconds
        outcome = self._ask(query, list(self._settings.silos), total)
        told: set[str] = set()
        while (undecided := _undecided(outcome)) and time.monotonic() < ends:
            for silo in set(undecided) - told:
                self._journal.write("waiting_for_consent", silo=silo, digest=digest(query).hex())
            told |= set(undecided)
            time.sleep(_CONSENT_POLL_SECONDS)
            outcome |= self._ask(query, undecided, total)
        return outcome

    def _ask(self, query: Query, silos: list[str], total: _Intake) -> dict[str, SilosynthError | None]:
        return self._exchange.ask(
            encode(query),
            silos,
            query.layout().size,
            total.accept,
            self._settings.grace_seconds,
            self._settings.answer_seconds,
        )


class _Intake:
    """Takes in releases as they come, once each was verified as the silo's own."""

    def __init__(self, query: Query, exchange: Exchange, counted: Collection[bytes] = frozenset()) -> None:
        self.receipts: list[Receipt] = []
        self._counted = counted
        self.collected = collection(query)
        self._query, self._exchange = query, exchange
        self._lock = threading.Lock()

    def accept(self, silo: str, sealed: bytes) -> None:
        values, receipt = open_release(self._query, sealed)
        hello = self._exchange.hello(silo)
        if hello is None or receipt.silo != silo or receipt.public_key != hello.description.public_key:
            raise VerificationFailed(f"{silo} sent a release that is not its own")
        with self._lock:
            if receipt.entry_hash not in self._counted:
                self.collected.add(silo, values)
            self.receipts.append(receipt)


def _undecided(outcome: dict[str, SilosynthError | None]) -> list[str]:
    return [silo for silo, error in outcome.items() if isinstance(error, ConsentPending)]


def _too_few(answered: int, quorum: int, failures: list[SilosynthError]) -> SilosynthError:
    """When every silo gives the same kind of reason, that reason is the run's; else too few took part."""
    kinds = {type(failure) for failure in failures}
    reasons = "; ".join(str(failure) for failure in failures)
    if answered == 0 and len(kinds) == 1:
        return kinds.pop()(reasons)
    return QuorumNotMet(f"{answered} silos answered, the quorum is {quorum}: {reasons}")
