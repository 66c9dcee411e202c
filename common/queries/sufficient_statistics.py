"""Sufficient statistics of ridge regression: second moments of the records and their sums per class."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from silosynth.common.events import Event, SampledGaussian
from silosynth.common.layout import Layout
from silosynth.common.queries.base import Query, in_range, length, require

FEATURE_GRID = 2.0**-14  # of a record scaled to length 1; products of two features lie on its square


@dataclass(frozen=True, kw_only=True)
class SufficientStatistics(Query):
    """A record x becomes u = clip(x - center) / clip, of length at most 1, and adds
    the upper triangle of u u^T, and class_weight * (u, kappa) to the row of its class.
    """

    mechanism: ClassVar[str] = "sufficient_statistics"

    center: float
    clip: float
    class_weight: float
    count_weight: float

    def __post_init__(self) -> None:
        require(in_range(self.center, -1, 1), f"center {self.center} is not in [-1, 1]")
        require(in_range(self.clip, 1e-6, 1e6), f"clip {self.clip} is not in [1e-6, 1e6]")
        for name, weight in (("class", self.class_weight), ("count", self.count_weight)):
            require(in_range(weight, 2.0**-10, 2.0**10), f"{name} weight {weight} is not in [2^-10, 2^10]")
            require(math.frexp(weight)[0] == 0.5, f"{name} weight {weight} is not a power of two")
        super().__post_init__()

    def layout(self) -> Layout:
        d, classes = self.schema.dimension, self.schema.classes
        return Layout.of(moments=(d * (d + 1) // 2,), sums=(classes, d), counts=(classes,))

    def sensitivity(self) -> float:
        """|triu(u u^T)| <= |u|^2 <= 1, beside class_weight * |(u, kappa)|."""
        return length(1.0, self.class_weight, self.class_weight * self.count_weight)

    def grid(self) -> float:
        return FEATURE_GRID**2

    def event(self) -> Event:
        return SampledGaussian(self.noise_multiplier)
