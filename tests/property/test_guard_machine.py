"""A guard through everything that can happen to it, in any order, against a model that knows what it must answer.

Asks, approvals, denials, crashes at each named step of a commit, restarts, threads, tightened and loosened terms, old
copies of the ledger, passing time. After every step: nothing overspent, no fresh noise for an old question, a valid
chain, heads that only advance. tests/fault kills real processes; here, what matters is the order of events.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from support.entropies import SeededEntropy
from support.guards import DELTA, counts_bytes, counts_query, ignore_progress, silo_tables, toy_records

from silosynth.client.config import SiloConfig
from silosynth.client.guard import chain
from silosynth.client.guard.decisions import Decisions
from silosynth.client.guard.guard import Guard
from silosynth.client.guard.head_file import head_path, read_head
from silosynth.client.guard.identity import Identity
from silosynth.client.guard.ledger import Ledger, Step, timestamp
from silosynth.client.guard.terms import Terms, stricter
from silosynth.client.mechanisms import MECHANISMS
from silosynth.common import accounting
from silosynth.common.config import parse
from silosynth.common.errors import (
    BudgetExhausted,
    ConsentPending,
    LedgerRolledBack,
    PolicyDenied,
    SilosynthError,
    VerificationFailed,
)
from silosynth.common.events import SampledGaussian
from silosynth.common.heads import Head
from silosynth.common.queries import digest
from silosynth.common.releases import open_release

NOISES = (6.0, 7.0, 8.0, 10.0, 12.0, 16.0, 20.0, 30.0, 50.0)
MEMORY = Path("/dev/shm")  # durability is not what is tested here, and syncing a disk would take most of the time
noises = st.sampled_from(NOISES)
picks = st.integers(0, 99)  # of what there is, modulo: which threads win a race must not change what hypothesis draws
lifetimes = st.sampled_from((None, 2, 100))  # of approvals, in hours
policies = st.fixed_dictionaries(
    {
        "consent": st.sampled_from(("auto",) * 4 + ("ask",) * 6 + ("deny",)),
        "mechanisms": st.sampled_from((["class_counts"],) * 9 + (["mixtures"],)),
        "max_epsilon_per_period": st.sampled_from((None, None, 0.5, 0.8)),
        "period_days": st.sampled_from((1, 7)),
    }
)
epsilons = st.sampled_from((0.4, 1.0, 2.0, 3.0))


class CrashError(BaseException):
    """The power is gone: nothing may catch this."""


class CountingEntropy(SeededEntropy):
    """Counts, for each question, how often noise was drawn for it."""

    def __init__(self) -> None:
        super().__init__()
        self.draws: Counter[float] = Counter()
        self.asking = threading.local()
        self._lock = threading.Lock()

    def words(self, count: int) -> npt.NDArray[np.uint64]:
        with self._lock:
            self.draws[self.asking.noise] += 1
            return super().words(count)


@dataclass
class Release:
    """What the model knows of a committed answer; its bytes are known only once they have left."""

    created: datetime
    sealed: bytes | None


@dataclass(frozen=True)
class Copy:
    """A backup of the ledger and of the head file of the same moment."""

    sequence: int
    ledger: bytes
    head: bytes | None


class GuardMachine(RuleBasedStateMachine):
    figures: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.figures["runs"] += 1
        self.folder = Path(tempfile.mkdtemp(prefix="machine-", dir=MEMORY if MEMORY.is_dir() else None))
        self.identity = Identity(Ed25519PrivateKey.generate())
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.entropy = CountingEntropy()
        self.crash_at: Step | None = None
        self.releases: dict[float, Release] = {}
        self.verdicts: dict[str, tuple[str, datetime | None]] = {}
        self.copies: list[Copy] = []
        self.seen: Head | None = None  # by the server
        self.decisions = Decisions.beside(self.folder / "ledger.db", self.identity, lambda: self.now)

    @initialize(policy=policies, epsilon=epsilons)
    def begin(self, policy: dict[str, Any], epsilon: float) -> None:
        self.file = self.config(policy, epsilon)
        self.terms = Terms.of(self.file)
        self.start()

    def teardown(self) -> None:
        if hasattr(self, "ledger"):
            self.ledger.close()
        shutil.rmtree(self.folder)

    def config(self, policy: dict[str, Any], epsilon: float) -> SiloConfig:
        stated = {name: value for name, value in policy.items() if value is not None}
        return parse(SiloConfig, silo_tables(epsilon=epsilon) | {"policy": stated}, "machine")

    def checkpoint(self, step: Step) -> None:
        if step is self.crash_at:
            raise CrashError

    def open(self) -> Ledger:
        return Ledger.open(self.folder / "ledger.db", "toy", self.identity, self.checkpoint, lambda: self.now)

    def start(self) -> None:
        self.ledger = self.open()
        self.guard = Guard(self.file, toy_records(), self.ledger, MECHANISMS, self.entropy)

    def restart(self) -> None:
        sequence = self.ledger.head().sequence
        self.ledger.close()
        ledger, head = self.folder / "ledger.db", head_path(self.folder / "ledger.db")
        self.copies.append(Copy(sequence, ledger.read_bytes(), head.read_bytes() if head.exists() else None))
        self.start()
        self.figures["restarts"] += 1

    # What the guard must answer.

    def expected(self, noise: float) -> type[SilosynthError] | None:
        if noise in self.releases:
            return None
        policy, budget = self.terms.policy, self.terms.budget
        if policy.consent == "deny" or "class_counts" not in policy.mechanisms:
            return PolicyDenied
        if self.epsilon_with(noise, self.releases) > budget.epsilon:
            return BudgetExhausted
        limit = policy.max_epsilon_per_period
        if limit is not None and self.epsilon_with(noise, self.recent()) > limit:
            return PolicyDenied
        return self.expected_by_consent(noise) if policy.consent == "ask" else None

    def expected_by_consent(self, noise: float) -> type[SilosynthError] | None:
        verdict, expires = self.verdicts.get(digest(counts_bytes(noise)).hex(), ("", None))
        if verdict == "denied":
            return PolicyDenied
        if verdict == "approved" and (expires is None or self.now < expires):
            return None
        return ConsentPending

    def recent(self) -> list[float]:
        since = self.now - timedelta(days=self.terms.policy.period_days)
        return [noise for noise, release in self.releases.items() if release.created >= since]

    def epsilon_with(self, noise: float, others: Any) -> float:
        return accounting.epsilon([SampledGaussian(noise), *map(SampledGaussian, others)], DELTA)

    # What happens.

    @rule(noise=noises)
    def ask(self, noise: float) -> None:
        expected, drawn = self.expected(noise), self.entropy.draws[noise]
        outcome = self.outcome(noise)
        assert outcome is expected or (expected is None and isinstance(outcome, bytes)), (expected, outcome)
        if isinstance(outcome, bytes):
            self.learn(noise, outcome, drawn)

    @rule(pick=picks)
    def ask_again(self, pick: int) -> None:
        """A replay: whatever the terms are by now, what left once may leave again."""
        if self.releases:
            self.ask(sorted(self.releases)[pick % len(self.releases)])
            self.figures["replays"] += 1

    def outcome(self, noise: float) -> bytes | type[SilosynthError]:
        self.entropy.asking.noise = noise
        self.figures["asks"] += 1
        try:
            return self.guard.answer(counts_bytes(noise), ignore_progress).sealed
        except SilosynthError as error:
            return type(error)

    def learn(self, noise: float, sealed: bytes, drawn: int) -> None:
        """An answer has left: it is the one given before, without a draw, or a new one."""
        _, receipt = open_release(counts_query(noise), sealed)
        if noise in self.releases:
            assert self.entropy.draws[noise] == drawn, "fresh noise for an old question"
            assert self.releases[noise].sealed in (None, sealed)
            self.releases[noise].sealed = sealed
        else:
            self.releases[noise] = Release(self.now, sealed)
            self.check_spending()
        assert receipt.created == timestamp(self.releases[noise].created)
        self.see(self.guard.head())

    def see(self, head: Head) -> None:
        head.verify()
        if self.seen is not None:
            assert head.sequence > self.seen.sequence or head == self.seen, "a head went back"
        self.seen = head

    @rule(asked=st.lists(noises, min_size=2, max_size=6))
    def ask_at_once(self, asked: list[float]) -> None:
        drawn = dict(self.entropy.draws)
        with ThreadPoolExecutor(4) as pool:
            outcomes = list(pool.map(self.outcome, asked))
        self.figures["concurrent asks"] += len(asked)
        answers = {(noise, sealed) for noise, sealed in zip(asked, outcomes, strict=True) if isinstance(sealed, bytes)}
        assert len(answers) == len({noise for noise, _ in answers}), "two answers to one question"
        for noise, sealed in answers:
            assert noise in self.releases or self.expected_by_consent_if_asked(noise) is None
            self.learn(noise, sealed, drawn.get(noise, 0))

    def expected_by_consent_if_asked(self, noise: float) -> type[SilosynthError] | None:
        return self.expected_by_consent(noise) if self.terms.policy.consent == "ask" else None

    def check_spending(self) -> None:
        """Only after a new release: tightened terms may lie below what was spent before."""
        events = [SampledGaussian(noise) for noise in self.releases]
        assert accounting.epsilon(events, DELTA) <= self.terms.budget.epsilon
        limit = self.terms.policy.max_epsilon_per_period
        assert limit is None or accounting.epsilon(map(SampledGaussian, self.recent()), DELTA) <= limit

    @rule(noise=noises, step=st.sampled_from(list(Step)))
    def crash(self, noise: float, step: Step) -> None:
        expected, known = self.expected(noise), noise in self.releases
        self.crash_at, self.entropy.asking.noise = step, noise
        reached = expected is None and not known
        try:
            self.guard.answer(counts_bytes(noise), ignore_progress)
            assert known
        except CrashError:
            assert reached
            self.figures[f"crashes: {step}"] += 1
            if step is Step.COMMITTED:
                self.releases[noise] = Release(self.now, None)
                self.check_spending()
        except SilosynthError as error:
            assert type(error) is expected  # noqa: PT017 (a crash is as good)
        self.crash_at = None
        self.restart()
        stored = self.ledger.find("default", digest(counts_bytes(noise)))
        assert (stored is not None) == (noise in self.releases)

    @rule()
    def stop_and_start(self) -> None:
        self.restart()

    @rule(hours=st.sampled_from((1, 12, 48, 240)))
    def let_time_pass(self, hours: int) -> None:
        self.now += timedelta(hours=hours)

    @rule(pick=picks, verdict=st.sampled_from(("approved", "approved", "denied")), hours=lifetimes)
    def decide(self, pick: int, verdict: str, hours: int | None) -> None:
        requests = self.decisions.requests("default")
        if not requests:
            return
        request = requests[pick % len(requests)]
        expires = None if hours is None or verdict == "denied" else self.now + timedelta(hours=hours)
        self.decisions.decide(request, verdict, "tester", expires)
        self.verdicts[request.digest] = (verdict, expires)
        self.figures[verdict] += 1

    @rule(policy=policies, epsilon=epsilons, adopting=st.sampled_from((False, False, True)))
    def change_the_file(self, policy: dict[str, Any], epsilon: float, adopting: bool) -> None:
        """Where it is stricter it holds from the next start, where it is looser only once it was adopted."""
        self.file = self.config(policy, epsilon)
        wanted, both = Terms.of(self.file), stricter(self.terms, Terms.of(self.file))
        if adopting:
            self.decisions.adopt("default", wanted, "adopted", "tester")
        self.terms = wanted if adopting else both
        self.figures[
            "terms adopted" if adopting else "terms tightened" if wanted == both else "terms not loosened"
        ] += 1
        self.restart()
        assert self.guard.budget().epsilon_total == self.terms.budget.epsilon

    @rule()
    def lose_the_terms(self) -> None:
        """Without the record of what was adopted, the guard does not start once anything was released."""
        self.ledger.close()
        hidden = self.decisions.path.rename(self.folder / "hidden")
        with closing(self.open()) as ledger:
            try:
                Guard(self.file, toy_records(), ledger, MECHANISMS, self.entropy)
                assert not self.releases
            except SilosynthError:
                assert self.releases
        hidden.replace(self.decisions.path)
        self.start()

    @rule(pick=picks, with_head=st.booleans())
    def restore(self, pick: int, with_head: bool) -> None:
        """An older copy is refused, by the head file or, if that is an older copy too, by what the server has seen."""
        if not self.copies or self.copies[0].sequence >= len(self.releases):
            return  # there is no older copy yet
        copy = self.copies[pick % len(self.copies)]
        self.ledger.close()
        newest, head = self.folder / "newest.db", head_path(self.folder / "ledger.db")
        kept = head.read_bytes() if head.exists() else None
        (self.folder / "ledger.db").rename(newest)
        (self.folder / "ledger.db").write_bytes(copy.ledger)
        if with_head:
            head.unlink(missing_ok=True)
            if copy.head is not None:
                head.write_bytes(copy.head)
        self.expect_refusal(copy)
        newest.replace(self.folder / "ledger.db")
        if kept is not None:
            head.write_bytes(kept)
        self.start()

    def expect_refusal(self, copy: Copy) -> None:
        remembered = read_head(self.folder / "ledger.db", self.identity.public_key)
        if remembered is not None and remembered.sequence > copy.sequence:
            with pytest.raises(LedgerRolledBack):
                self.open()
            self.figures["old copies refused by the head file"] += 1
            return
        self.start()
        if self.seen is not None and self.seen.sequence > copy.sequence:
            with pytest.raises(LedgerRolledBack):
                self.guard.witness(self.seen)
            with pytest.raises(LedgerRolledBack):
                self.guard.answer(counts_bytes(50.0), ignore_progress)
            self.figures["old copies refused by the server's head"] += 1
        self.ledger.close()

    @rule(ahead=st.integers(1, 5))
    def meet_the_server(self, ahead: int) -> None:
        """What it has seen is acknowledged; what it invents changes nothing."""
        if self.seen is None:
            return
        self.see(self.guard.witness(self.seen))
        stranger = Identity(Ed25519PrivateKey.generate())
        forged = replace(self.seen, sequence=self.seen.sequence + ahead)
        signed = stranger.sign(replace(forged, public_key=stranger.public_key))
        for invented in (forged, signed, stranger.sign(forged)):
            with pytest.raises(VerificationFailed):
                self.guard.witness(invented)
        self.figures["invented heads ignored"] += 3

    # What must hold all the time.

    @invariant()
    def the_chain_is_valid_and_holds_what_was_released(self) -> None:
        with closing(sqlite3.connect(self.folder / "ledger.db")) as connection:
            receipts = list(chain.audit(connection, self.identity.public_key))
        charged = Counter(receipt.event for receipt in receipts)
        assert charged == Counter(map(SampledGaussian, self.releases))
        assert self.guard.budget().epsilon_spent == accounting.epsilon([r.event for r in receipts], DELTA)
        self.figures["chains verified"] += 1


def run(examples: int) -> None:
    GuardMachine.figures.clear()
    health = list(HealthCheck)
    run_state_machine_as_test(
        GuardMachine,
        settings=settings(
            max_examples=examples, stateful_step_count=30, deadline=None, database=None, suppress_health_check=health
        ),
    )
    print("\n" + "\n".join(f"{count:>8} {name}" for name, count in sorted(GuardMachine.figures.items())))
    print("       0 overspends, 0 fresh draws for an old question, 0 invalid chains, 0 heads that went back")


def test_guard_through_everything() -> None:
    run(60)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_guard_through_everything_two_thousand_times() -> None:
    run(2000)
    assert GuardMachine.figures["runs"] >= 2000
    assert {f"crashes: {step}" for step in Step} <= set(GuardMachine.figures)
