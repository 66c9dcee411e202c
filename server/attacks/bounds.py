"""What guesses prove: intervals of shares, and lower bounds on privacy losses. Statistics only."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from scipy.special import betaincinv, ndtri
from scipy.stats import binom

from silosynth.common import accounting
from silosynth.common.events import Event

_LARGEST_EPSILON = 50.0
_STEPS = 50  # of halving: far below what any number of guesses can tell


def clopper_pearson(successes: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """Where a probability lies, two-sided, exact for any number of trials."""
    tail = (1 - confidence) / 2
    low = float(betaincinv(successes, trials - successes + 1, tail)) if successes else 0.0
    high = float(betaincinv(successes + 1, trials - successes, 1 - tail)) if successes < trials else 1.0
    return low, high


def one_run_p_value(canaries: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """The largest probability with which any (epsilon, delta)-DP mechanism lets so many guesses be right.

    Steinke, Nasr and Jagielski, "Privacy auditing with one (1) training run" (2023): each canary takes part by a fair
    coin of its own, guesses may depend on everything released.
    """
    share = 1 / (1 + math.exp(-epsilon))
    counts = np.arange(1, correct + 1)
    below = np.cumsum(binom.pmf(correct - counts, guesses, share))  # P[correct > B >= correct - i]
    slack = float((below / counts).max(initial=0.0))
    return min(1.0, float(binom.sf(correct - 1, guesses, share)) + 2 * canaries * delta * slack)


def one_run_epsilon(canaries: int, guesses: int, correct: int, delta: float, confidence: float) -> float:
    """The largest epsilon that is refuted at this delta; 0 where none is."""
    low, high = 0.0, _LARGEST_EPSILON
    for _ in range(_STEPS):
        middle = (low + high) / 2
        refuted = one_run_p_value(canaries, guesses, correct, middle, delta) < 1 - confidence
        low, high = (middle, high) if refuted else (low, middle)
    return low


def repeated_epsilon(trials: int, correct: int, delta: float, confidence: float) -> float:
    """From independent games of one coin each, of which an (epsilon, delta)-DP mechanism lets at most a share
    (exp(epsilon) + delta) / (exp(epsilon) + 1) be won.
    """
    low, _ = clopper_pearson(correct, trials, 2 * confidence - 1)
    odds = (low - delta) / (1 - low)
    return max(0.0, math.log(odds)) if odds > 0 else 0.0


def largest_share_won(events: Sequence[Event]) -> float:
    """Of games of one coin each, whatever the guesser does: (1 + total variation) / 2 of what is charged."""
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if accounting.epsilon(events, middle) == 0 else (middle, high)
    return (1 + high) / 2


def equivalent_noise(events: Sequence[Event]) -> float:
    """The noise multiplier of one Gaussian mechanism that lets as many games be won."""
    return float(1 / (2 * ndtri(largest_share_won(events))))


def refutes(correct: int, trials: int, share: float, confidence: float) -> bool:
    """Whether so many games are too many to have been won with a probability of `share` each."""
    return bool(binom.sf(correct - 1, trials, share) < 1 - confidence)


def power_of_repeated(trials: int, claimed: float, true: float, confidence: float) -> float:
    """How probable `refutes` is where `true` is the share that is won in the long run."""
    enough = int(binom.isf(1 - confidence, trials, claimed)) + 1
    return float(binom.sf(enough - 1, trials, true))


def weakened(events: Iterable[Event], divisor: float) -> list[Event]:
    """The same with so many times less noise."""
    return [replace(event, noise_multiplier=event.noise_multiplier / divisor) for event in events]
