"""What a claim of privacy lets anybody find out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from silosynth.common import accounting
from silosynth.common.events import Event, SampledGaussian

_DELTAS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.03, 0.1, 0.2, 0.3, 0.5)
_LARGEST_EPSILON = 100.0  # allows everything


@dataclass(frozen=True)
class Claim:
    """Pairs of epsilon and delta that all hold."""

    pairs: tuple[tuple[float, float], ...]

    @classmethod
    def of(cls, epsilon: float, delta: float, events: Iterable[Event] = ()) -> Claim:
        """What a run promises and, where all that a silo is charged is known, what that amounts to at other deltas."""
        charged = list(events)
        if not charged or not all(isinstance(event, SampledGaussian) for event in charged):
            return cls(((epsilon, delta),))
        return cls(((epsilon, delta), *((accounting.epsilon(charged, other), other) for other in _DELTAS)))

    def allowed(self, false_rate: float) -> float:
        """The most members that anybody recognizes who is wrong about this share of outsiders."""
        return min(_allowed(false_rate, *pair) for pair in self.pairs)


def _allowed(false_rate: float, epsilon: float, delta: float) -> float:
    """By (epsilon, delta)-DP, applied to "a member" and to "no member"."""
    if epsilon > _LARGEST_EPSILON:
        return 1.0
    recognized = math.exp(epsilon) * false_rate + delta
    not_overlooked = 1 - math.exp(-epsilon) * (1 - false_rate - delta)
    return min(1.0, recognized, not_overlooked)


def known(pairs: Sequence[tuple[float, float]], epsilon: float | None, delta: float) -> Claim | None:
    """As a report tells it; None where nothing is claimed."""
    if epsilon is None:
        return None
    return Claim(tuple(pairs) or ((epsilon, delta),))
