"""The guard itself, without its wire: from a query's bytes to a sealed release, or to the reason why not."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from importlib.metadata import version

import numpy as np

from silosynth.client.config import SiloConfig
from silosynth.client.guard import policy
from silosynth.client.guard.adoption import check_epoch, settle_terms
from silosynth.client.guard.artifacts import Shelf, absent
from silosynth.client.guard.containment import contained
from silosynth.client.guard.decisions import Decisions
from silosynth.client.guard.entropy import Entropy
from silosynth.client.guard.inside import Artifacts, Inside
from silosynth.client.guard.ledger import Answered, Ledger
from silosynth.client.guard.mechanism import Bench, Mechanisms, Report
from silosynth.client.guard.noise import add_noise
from silosynth.common import accounting
from silosynth.common.datasets.records import Records
from silosynth.common.errors import LedgerRolledBack, QueryError, SilosynthError, SiloUnavailable, VerificationFailed
from silosynth.common.events import Event, cost, left_of
from silosynth.common.heads import Head
from silosynth.common.queries import Query, decode, digest
from silosynth.common.releases import Integers, pack_payload, unseal
from silosynth.protos.v1 import guard_pb2

_NO_RECORDS = np.zeros(0, dtype=np.int64)


class Guard:
    """Answers queries about `records` as the silo's policy and budget allow; safe to call from many threads."""

    def __init__(
        self,
        config: SiloConfig,
        records: Records,
        ledger: Ledger,
        mechanisms: Mechanisms,
        entropy: Entropy,
        on_rollback: Callable[[], None] = lambda: None,
    ) -> None:
        policy.check_names(config.policy, mechanisms)
        check_epoch(config, ledger)
        self._config = config
        self._records = records
        self._ledger = ledger
        self._mechanisms = mechanisms
        self._entropy = entropy
        self._on_rollback = on_rollback
        self._decisions = Decisions.beside(ledger.path, ledger.identity, ledger.clock)
        self._terms = settle_terms(config, ledger, self._decisions)
        self._shelf = Shelf.beside(ledger.path)
        self.rolled_back: LedgerRolledBack | None = None
        self._computing = threading.Lock()
        self._stopping = False

    @contained(SilosynthError)
    def answer(self, query_bytes: bytes, report: Report) -> Answered:
        """The sealed release for a query: the stored one if it was asked before, else a new one, charged."""
        query = self._understood(query_bytes)
        stored = self._stored(query_bytes)
        if stored is None:
            self._check_allowed(query, query_bytes)
            if missing := self._shelf.missing(query.artifacts()):
                raise absent(*missing)
            stored = self._computed_once(query, query_bytes, report)
        self._shelf.discard(query.passing_artifacts())
        return stored

    @contained(SilosynthError)
    def lacking(self, query_bytes: bytes) -> tuple[str, ...]:
        """The artifacts to deposit before this query can be answered. Of one that is not allowed none is taken in."""
        query = self._understood(query_bytes)
        missing = self._shelf.missing(query.artifacts())
        if not missing or self._stored(query_bytes) is not None:
            return ()
        self._check_allowed(query, query_bytes)
        self._shelf.want(missing)
        return missing

    @contained(SilosynthError)
    def deposit(self, artifact: str, chunks: Iterable[bytes]) -> None:
        """Take in what was found lacking."""
        self._shelf.deposit(artifact, chunks)

    @contained(SilosynthError)
    def describe(self) -> guard_pb2.Description:
        """Public facts only."""
        return guard_pb2.Description(
            silo=self._config.silo.name,
            dataset=self._dataset,
            version=version("silosynth"),
            schema=self._records.schema.to_proto(),
            mechanisms=self._terms.policy.mechanisms,
            public_key=self._ledger.public_key,
            head=self._ledger.head().to_proto(),
            disjoint_from=self._config.silo.disjoint_from,
        )

    @contained(SilosynthError)
    def budget(self) -> guard_pb2.BudgetStatus:
        budget, spent = self._terms.budget, self._ledger.spent(self._dataset)
        return guard_pb2.BudgetStatus(
            epsilon_total=budget.epsilon,
            epsilon_spent=accounting.epsilon(spent.events, budget.delta),
            delta=budget.delta,
            releases=spent.releases,
        )

    @contained(SilosynthError)
    def head(self) -> Head:
        """How far the ledger has come."""
        return self._ledger.head()

    @contained(SilosynthError)
    def witness(self, head: Head) -> Head:
        """Compare the ledger with a head of it that the server kept; the head it has now.

        Only our own signature counts: a server that invents heads must not be able to silence this guard.
        """
        head.verify()
        if head.public_key != self._ledger.public_key:
            raise VerificationFailed("the head shown is that of another ledger: this guard never signed it")
        try:
            self._ledger.check_follows(head)
        except LedgerRolledBack as error:
            self.rolled_back = LedgerRolledBack(
                f"{self._ledger.path}: the server has seen a newer ledger: {error}. What was released since is not "
                "charged here, so this guard answers nothing. Restore the newest copy of the ledger, never begin anew"
            )
            self._on_rollback()
            raise self.rolled_back from error
        return self._ledger.head()

    def stop(self) -> None:
        """End a computation at its next report; nothing of it is charged."""
        self._stopping = True

    @property
    def _dataset(self) -> str:
        return self._config.silo.dataset

    def _understood(self, query_bytes: bytes) -> Query:
        if self.rolled_back is not None:
            raise self.rolled_back
        query = decode(query_bytes)
        if query.schema != self._records.schema:
            raise QueryError(f"the query is for {query.schema}, this silo's records are {self._records.schema}")
        return query

    def _check_allowed(self, query: Query, query_bytes: bytes) -> None:
        policy.check_policy(query, self._terms.policy, self._terms.budget.delta)
        if (due := self._due(query)) is not None:
            self._check_spending(due, self._ledger.spent(self._dataset).events)
        self._check_consent(query_bytes)

    def _due(self, query: Query) -> Event | None:
        """What answering the query will be charged: of one that was begun, only what is left."""
        if not query.inner_identities():
            return query.event()
        stored = [self._stored(identity) for identity in query.inner_identities()]
        paid = [cost(unseal(answered.sealed)[1].event) for answered in stored if answered is not None]
        return left_of(query.event(), paid) if len(paid) < len(stored) else None

    def _stored(self, query_bytes: bytes) -> Answered | None:
        sealed = self._ledger.find(self._dataset, digest(query_bytes))
        return None if sealed is None else Answered(sealed, replayed=True)

    def _check_spending(self, due: Event, spent: tuple[Event, ...]) -> None:
        policy.check_budget(due, spent, self._terms.budget)
        since = self._ledger.clock() - timedelta(days=self._terms.policy.period_days)
        recent = self._ledger.spent(self._dataset, since).events
        policy.check_period(due, recent, self._terms.policy, self._terms.budget.delta)

    def _check_consent(self, query_bytes: bytes) -> None:
        """Last of all: nobody should have to decide on what would be refused anyway."""
        if self._terms.policy.consent == "ask":
            identity = digest(query_bytes).hex()
            verdict = self._decisions.verdict(self._dataset, identity)
            if verdict is None:
                self._decisions.queue(self._dataset, identity, query_bytes)
            policy.check_consent(identity, verdict)

    def _computed_once(self, query: Query, query_bytes: bytes, report: Report) -> Answered:
        """One computation at a time: memory is bounded by one query, and whoever asks the same meanwhile waits."""
        with self._computing:
            stored = self._stored(query_bytes)
            if stored is not None:
                return stored
            if query.inner_identities():
                return self._made_inside(query, query_bytes, report)
            values = self._computed(query, self._bench(report))
            return self._charged(query, query_bytes, query.event(), values)

    def _charged(self, query: Query, query_bytes: bytes, due: Event, values: Integers) -> Answered:
        """`due` must fit the budget: the query's own event, or that with all that follows it."""
        return self._ledger.commit(
            self._dataset,
            query_bytes,
            query.event(),
            check_budget=lambda spent: self._check_spending(due, spent),
            draw_payload=lambda: self._noisy_payload(query, values),
        )

    def _made_inside(self, query: Query, query_bytes: bytes, report: Report) -> Answered:
        """From noisy answers that the ledger has charged and stored one by one: what makes it is shown no record."""
        scratch = self._ledger.path.with_name("unfinished") / digest(query_bytes).hex()
        inside = Inside(query, self._stored, self._answered_inside)
        bench = replace(self._bench(report), ask=inside.ask, silo=self._config.silo.name, scratch=scratch)
        bench.report(0.0)
        with contained(SilosynthError):
            values = self._mechanisms[query.mechanism](query, self._records.take(_NO_RECORDS), bench)
        answered = self._ledger.commit(
            self._dataset,
            query_bytes,
            inside.charge(),
            check_budget=lambda spent: None,
            draw_payload=lambda: self._noisy_payload(query, values),
        )
        shutil.rmtree(scratch, ignore_errors=True)
        return answered

    def _answered_inside(self, query: Query, identity: bytes, artifacts: Artifacts, due: Event) -> Answered:
        def artifact(name: str) -> bytes:
            return artifacts[name] if name in artifacts else self._shelf.read(name)

        values = self._computed(query, replace(self._bench(_untold), artifact=artifact))
        return self._charged(query, identity, due, values)

    def _bench(self, report: Report) -> Bench:
        def report_unless_stopping(fraction: float) -> None:
            if self._stopping:
                raise SiloUnavailable("the guard is stopping: ask again when it is back")
            report(fraction)

        keep = self._ledger.path.with_name("teachers")
        return Bench(self._entropy, report_unless_stopping, self._shelf.read, self._config.guard.device, keep=keep)

    def _computed(self, query: Query, bench: Bench) -> Integers:
        with contained(QueryError, SiloUnavailable):
            bench.report(0.0)
            return self._mechanisms[query.mechanism](query, self._records, bench)

    @contained(QueryError)
    def _noisy_payload(self, query: Query, values: Integers) -> bytes:
        plan = query.plan()
        return pack_payload(digest(query), plan.grid, add_noise(values, plan, self._entropy))


def _untold(fraction: float) -> None:
    """What is made of statistics takes longer by far than they do: its progress is told, theirs is not."""
