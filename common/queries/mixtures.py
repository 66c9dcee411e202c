"""Mixtures: sums of Poisson-sampled raw records per class, each with the noisy size of its sample."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from silosynth.common.events import Event, SampledGaussian
from silosynth.common.layout import Layout
from silosynth.common.queries.base import Query, fine_grid, in_range, length, require


@dataclass(frozen=True, kw_only=True)
class Mixtures(Query):
    """M mixtures per class at one public sampling rate; with M = 1 and rate 1 these are plain class sums.

    A record x of class c adds (clip(x - center), kappa) to every mixture of class c that draws it.
    """

    mechanism: ClassVar[str] = "mixtures"

    mixtures: int
    sampling_probability: float
    center: float
    clip: float
    count_weight: float

    def __post_init__(self) -> None:
        largest = math.sqrt(self.schema.dimension) * (1 + abs(self.center))
        require(in_range(self.center, -1, 1), f"center {self.center} is not in [-1, 1]")
        require(in_range(self.clip, 1e-6, largest * (1 + 1e-9)), f"clip {self.clip} is not in [1e-6, {largest:.6g}]")
        require(in_range(self.count_weight, 1e-6 * self.clip, 1e3 * self.clip), "count weight is out of range")
        super().__post_init__()

    def layout(self) -> Layout:
        per_class = (self.mixtures, self.schema.classes)
        return Layout.of(sums=(*per_class, self.schema.dimension), counts=per_class)

    def sensitivity(self) -> float:
        """Of one mixture; the event counts that a record may enter all M of them."""
        return length(self.clip, self.count_weight)

    def grid(self) -> float:
        """Fine enough for a typical coordinate (1/256 of it) and for the counting coordinate (1/16 at the least)."""
        return fine_grid(min(self.clip, self.count_weight * 16), self.schema.dimension)

    def count_step(self) -> int:
        """What one record adds to its count, in grid steps: divide released counts by this times the grid."""
        return int(self.count_weight / self.grid())

    def event(self) -> Event:
        return SampledGaussian(self.noise_multiplier, self.sampling_probability, self.mixtures)
