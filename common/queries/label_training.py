"""Label training: the weights of a small classifier, learned from the records with labels by randomized response."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from silosynth.common.events import LabelResponse
from silosynth.common.layout import Layout
from silosynth.common.networks.shapes import classifier_size
from silosynth.common.queries.base import Query
from silosynth.common.queries.private_training import WEIGHT_GRID, check_network, check_training

_ROUNDING = 1e-12


@dataclass(frozen=True, kw_only=True)
class LabelTraining(Query):
    """Every label is told by randomized response once, of epsilon 1 / `noise_multiplier`; the rest is usual training.

    Nothing but labels is protected. Given what was told, no label moves the weights further.
    """

    mechanism: ClassVar[str] = "label_training"

    network: str
    backbone: str
    seed: int
    steps: int
    features: int

    def __post_init__(self) -> None:
        check_network(self.schema, self.network, self.backbone, self.features)
        check_training(self.seed, self.steps)
        super().__post_init__()

    def artifacts(self) -> tuple[str, ...]:
        return (self.backbone,) if self.backbone else ()

    def backbones(self) -> tuple[str, ...]:
        return self.artifacts()

    def layout(self) -> Layout:
        return Layout.of(weights=(classifier_size(self.network, self.schema, self.features or self.schema.dimension),))

    def sensitivity(self) -> float:
        return 0.0

    def grid(self) -> float:
        return WEIGHT_GRID

    def event(self) -> LabelResponse:
        return LabelResponse(self.noise_multiplier)

    def kept_probability(self, choices: int) -> float:
        """Of a label among so many; rounded down, so that epsilon is no more than is charged."""
        return max(1 / (1 + (choices - 1) * math.exp(-self.event().epsilon)) - _ROUNDING, 1 / choices)
