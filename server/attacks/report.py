"""attacks.json: what attacks on a simulated federation found, beside what privacy promises."""

from __future__ import annotations

from typing import Any, Literal

from silosynth.common.config import Section
from silosynth.common.errors import VerificationFailed
from silosynth.common.publication.manifest import Code


class Rate(Section):
    """A share with its 95 % interval by Clopper and Pearson; `allowed` is the most that the claimed privacy permits."""

    value: float
    low: float
    high: float
    allowed: float | None = None  # None where nothing is claimed


class RocPoint(Section):
    false_positive_rate: float
    true_positive_rate: float


class Membership(Section):
    """How well an attack tells records that took part from records of the same kind that did not.

    Beside it stands what the claim allows: whoever is wrong about outsiders in a share x of the cases is right about
    members in at most exp(epsilon) x + delta, for every pair of epsilon and delta that is claimed.
    """

    attack: Literal["lira", "density", "nearest"]
    method: str  # in a sentence
    members: int  # decisions about records that took part
    outsiders: int
    area: float  # under the curve; 0.5 is guessing
    area_interval: tuple[float, float]  # 95 %
    tpr_at_0_1_percent: Rate | None  # true positives at 0.1 % false ones; None for fewer than 1,000 outsiders
    tpr_at_1_percent: Rate | None  # None for fewer than 100 outsiders
    roc: tuple[RocPoint, ...]
    flagged: bool  # the attack does better than the claim allows, with 99.9 % confidence at each of four rates


class Power(Section):
    """How often the same audit finds a mechanism out whose noise is the claimed one divided by `noise_divided_by`."""

    noise_divided_by: float
    share: float
    audits: int | None  # that were tried to find out; None where it was computed


class Audit(Section):
    """Canaries take part or not by coins; how many are guessed right bounds the privacy loss from below.

    "one run": many canaries, one answer (Steinke, Nasr, Jagielski, "Privacy auditing with one (1) training run", 2023).
    "repeated": one canary, an answer for every coin; it needs a mechanism that can be asked anew, as in a simulation.
    """

    mechanism: str
    method: Literal["one run", "repeated"]
    runs: int  # answers drawn
    canaries: int  # in each
    guesses: int  # of all runs; of the other canaries nothing is said
    correct: int
    confidence: float
    delta: float
    epsilon_claimed: float | None  # at this delta; None where no noise is claimed
    epsilon_lower: float  # at this delta, whatever the mechanism does
    flagged: bool  # the claim, at whichever delta, is refuted
    power: Power | None


class Machine(Section):
    """Where it was measured."""

    processor: str
    cores: int
    python: str
    torch: str


class AttackReport(Section):
    """The relation is that of every epsilon here: one record of one silo added or removed."""

    version: Literal[1] = 1
    attacked: str  # what, in words
    recipe: str
    parameters: dict[str, Any]
    relation: str = "one record of one silo added or removed"
    epsilon_claimed: float | None  # of each silo; None: no noise
    delta: float
    claims: tuple[tuple[float, float], ...] = ()  # pairs of epsilon and delta that what a silo is charged amounts to
    data: str
    silos: int
    partition: str
    records: int  # of all silos together in one run, on average
    runs: int  # shadow runs of the whole recipe
    seeds: tuple[int, ...]
    membership: tuple[Membership, ...] = ()
    audits: tuple[Audit, ...] = ()
    not_audited: tuple[str, ...] = ()  # mechanisms that are asked, too, but are no noisy sums of records
    cpu_seconds: float
    code: Code
    commit: str | None  # None where the code lies in no git repository
    machine: Machine

    @property
    def flagged(self) -> bool:
        return any(attack.flagged for attack in self.membership) or any(audit.flagged for audit in self.audits)

    def verdict(self) -> None:
        """VerificationFailed if anything refutes the claim, so that a script can stop there."""
        if self.flagged:
            raise VerificationFailed(
                f"attacks refute what {self.recipe} claims: release nothing made in this way before somebody knows why"
            )
