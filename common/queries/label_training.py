"""Label training: the weights of a small classifier, learned from the records with labels by randomized response."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from silosynth.common.events import LabelResponse
from silosynth.common.queries.training import Training

_ROUNDING = 1e-12


@dataclass(frozen=True, kw_only=True)
class LabelTraining(Training):
    """Every label is told by randomized response once, of epsilon 1 / `noise_multiplier`; the rest is usual training.

    Nothing but labels is protected.
    """

    mechanism: ClassVar[str] = "label_training"

    def event(self) -> LabelResponse:
        return LabelResponse(self.noise_multiplier)

    def kept_probability(self, choices: int) -> float:
        """Of a label among so many; rounded down, so that epsilon is no more than is charged."""
        return max(1 / (1 + (choices - 1) * math.exp(-self.event().epsilon)) - _ROUNDING, 1 / choices)
