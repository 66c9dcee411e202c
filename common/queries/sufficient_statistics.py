"""Sufficient statistics of linear models: second moments of the records, or of their features, and sums per class."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from silosynth.common.events import Event, SampledGaussian
from silosynth.common.layout import Layout
from silosynth.common.queries.base import Query, in_range, length, require

FEATURE_GRID = 2.0**-14  # of a record scaled to length 1; products of two features lie on its square
MOST_FEATURES = 1 << 13


@dataclass(frozen=True, kw_only=True)
class SufficientStatistics(Query):
    """A record x of class c becomes u = clip(f(x) - center - centers[c]) / clip, of length at most 1, and adds
    the upper triangle of u u^T, and class_weight * (u, kappa) to the row of its class.

    f(x) is the record itself, or its spatial features seen through a public backbone, which are no longer than 1.
    """

    mechanism: ClassVar[str] = "sufficient_statistics"

    center: float
    clip: float
    class_weight: float
    count_weight: float
    backbone: str = ""
    features: int = 0
    centers: str = ""
    sums_only: bool = False

    def __post_init__(self) -> None:
        require(in_range(self.center, -1, 1), f"center {self.center} is not in [-1, 1]")
        require(in_range(self.clip, 1e-6, 1e6), f"clip {self.clip} is not in [1e-6, 1e6]")
        for name, weight in (("class", self.class_weight), ("count", self.count_weight)):
            require(in_range(weight, 2.0**-10, 2.0**10), f"{name} weight {weight} is not in [2^-10, 2^10]")
            require(math.frexp(weight)[0] == 0.5, f"{name} weight {weight} is not a power of two")
        least = 1 if self.backbone else 0
        most = MOST_FEATURES if self.backbone else 0
        require(least <= self.features <= most, f"{self.features} features are not between {least} and {most}")
        require(self.schema.is_image or not self.backbone, "a backbone looks at images, these records are rows")
        super().__post_init__()

    @property
    def dimension(self) -> int:
        return self.features or self.schema.dimension

    def artifacts(self) -> tuple[str, ...]:
        return tuple(name for name in (self.backbone, self.centers) if name)

    def backbones(self) -> tuple[str, ...]:
        return (self.backbone,) if self.backbone else ()

    def layout(self) -> Layout:
        d, classes = self.dimension, self.schema.classes
        moments = 0 if self.sums_only else d * (d + 1) // 2
        return Layout.of(moments=(moments,), sums=(classes, d), counts=(classes,))

    def sensitivity(self) -> float:
        """|triu(u u^T)| <= |u|^2 <= 1, beside class_weight * |(u, kappa)|."""
        moments = 0.0 if self.sums_only else 1.0
        return length(moments, self.class_weight, self.class_weight * self.count_weight)

    def grid(self) -> float:
        return FEATURE_GRID**2

    def event(self) -> Event:
        return SampledGaussian(self.noise_multiplier)
