"""Audits of a mechanism: does it keep the privacy that its query's event claims?

Canaries alone, without other records: privacy must hold for every set of records, and nothing else blurs them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from silosynth.common import accounting
from silosynth.common.datasets.records import Records
from silosynth.common.queries import Query
from silosynth.deploy.attacks.canaries import canaries
from silosynth.deploy.attacks.scoring import Answer, Scorer
from silosynth.server.attacks import bounds
from silosynth.server.attacks.report import Audit, Power

WEAKENED = 3.0  # what an audit must be able to find out: noise divided by this
_MOST_CANARIES, _MOST_SIGNATURE_VALUES = 2000, 50_000_000
_ONE_RUN_CONFIDENCE = 0.95  # its bound is so wide that honest mechanisms are far inside
_REPEATED_CONFIDENCE = 0.999  # its bound is tight: an honest mechanism is accused once in a thousand audits
_REPEATS = 1000
_MEASUREMENTS = 60  # of the noise, before the repeated audit
_POWER_AUDITS = 20
_DELTAS, _SHARES = (1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2), (0.03, 0.1, 0.2, 0.3, 0.5, 1.0)

Report = Callable[[float], None]


def audit_in_one_run(query: Query, answer: Answer, exact: Answer, seed: int) -> Audit:
    """`exact` answers without noise: the attacker's own copy of the mechanism."""
    most = min(_MOST_CANARIES, max(_MOST_SIGNATURE_VALUES // query.layout().size, 1))
    game = _OneRun.of(query, canaries(query, most), exact)
    dice = np.random.default_rng(seed)
    flagged = [game.play(_with_less_noise(answer), dice).flagged for _ in range(_POWER_AUDITS)]
    power = Power(noise_divided_by=WEAKENED, share=float(np.mean(flagged)), audits=_POWER_AUDITS)
    return game.play(answer, dice).model_copy(update={"power": power})


def audit_repeatedly(
    query: Query, answer: Answer, exact: Answer, seed: int, report: Report = lambda share: None
) -> Audit:
    """One canary, a new answer for every coin. The noise is measured first: a value without any gives all away."""
    canary = canaries(query, 1)
    silence = [answer(query, canary.take(np.zeros(0, dtype=np.int64))) for _ in range(_MEASUREMENTS)]
    scorer = Scorer(query, canary, exact, noise=np.std(silence, axis=0))
    coins = np.random.default_rng(seed).random(_REPEATS) < 0.5
    correct = 0
    for number, coin in enumerate(coins):
        heard = answer(query, canary.take(np.arange(int(coin))))
        correct += int((scorer.scores(heard)[0] > 0) == coin)
        report((number + 1) / _REPEATS)
    return _judged(query, correct, scorer.reach)


def _judged(query: Query, correct: int, reach: float) -> Audit:
    """Noise that is divided looks the less divided, the less the canary moves the answer."""
    events, delta = [query.event()], _DELTAS[0]
    claimed, weak = (bounds.largest_share_won(bounds.weakened(events, divisor)) for divisor in (1.0, reach * WEAKENED))
    power = bounds.power_of_repeated(_REPEATS, claimed, weak, _REPEATED_CONFIDENCE)
    return Audit(
        mechanism=query.mechanism,
        method="repeated",
        runs=_REPEATS,
        canaries=1,
        guesses=_REPEATS,
        correct=correct,
        confidence=_REPEATED_CONFIDENCE,
        delta=delta,
        epsilon_claimed=accounting.epsilon(events, delta),
        epsilon_lower=bounds.repeated_epsilon(_REPEATS, correct, delta, _REPEATED_CONFIDENCE),
        flagged=bounds.refutes(correct, _REPEATS, claimed, _REPEATED_CONFIDENCE),
        power=Power(noise_divided_by=WEAKENED, share=power, audits=None),
    )


@dataclass(frozen=True)
class _OneRun:
    """Delta and the share of canaries about which anything is said are chosen before anybody is asked."""

    query: Query
    canaries: Records
    scorer: Scorer
    delta: float
    guesses: int

    @classmethod
    def of(cls, query: Query, birds: Records, exact: Answer) -> _OneRun:
        delta, guesses = _design(query, len(birds))
        return cls(query, birds, Scorer(query, birds, exact), delta, guesses)

    def play(self, answer: Answer, dice: np.random.Generator) -> Audit:
        coins = dice.random(len(self.canaries)) < 0.5
        scores = self.scorer.scores(answer(self.query, self.canaries.take(np.flatnonzero(coins))))
        surest = np.argsort(-np.abs(scores), kind="stable")[: self.guesses]
        correct = int(((scores > 0) == coins)[surest].sum())
        claimed = accounting.epsilon([self.query.event()], self.delta)
        lower = bounds.one_run_epsilon(len(coins), self.guesses, correct, self.delta, _ONE_RUN_CONFIDENCE)
        return Audit(
            mechanism=self.query.mechanism,
            method="one run",
            runs=1,
            canaries=len(coins),
            guesses=self.guesses,
            correct=correct,
            confidence=_ONE_RUN_CONFIDENCE,
            delta=self.delta,
            epsilon_claimed=claimed,
            epsilon_lower=lower,
            flagged=lower > claimed,
            power=None,
        )


def _design(query: Query, count: int) -> tuple[float, int]:
    """Delta and number of guesses with which noise divided by three is found out most surely, by simulation."""
    events = [query.event()]
    noise = bounds.equivalent_noise(bounds.weakened(events, WEAKENED))
    dice = np.random.default_rng(0)
    coins = dice.random((_POWER_AUDITS, count)) < 0.5
    seen = coins - 0.5 + noise * dice.standard_normal(coins.shape)
    order = np.argsort(-np.abs(seen), axis=1)
    right = np.cumsum(np.take_along_axis((seen > 0) == coins, order, axis=1), axis=1)

    def typical_p_value(delta: float, guesses: int) -> float:
        claimed = accounting.epsilon(events, delta)
        correct = int(np.quantile(right[:, guesses - 1], 0.1))
        return bounds.one_run_p_value(count, guesses, correct, claimed, delta)

    choices = [(delta, max(int(share * count), 1)) for delta in _DELTAS for share in _SHARES]
    return min(choices, key=lambda choice: typical_p_value(*choice))


def _with_less_noise(answer: Answer) -> Answer:
    def weaker(query: Query, records: Records) -> npt.NDArray[np.int64]:
        return answer(replace(query, noise_multiplier=query.noise_multiplier / WEAKENED), records)

    return weaker
