"""Class counts: how many records of each class a silo holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from silosynth.common.events import Event, SampledGaussian
from silosynth.common.layout import Layout
from silosynth.common.queries.base import Query


@dataclass(frozen=True, kw_only=True)
class ClassCounts(Query):
    mechanism: ClassVar[str] = "class_counts"

    def layout(self) -> Layout:
        return Layout.of(counts=(self.schema.classes,))

    def sensitivity(self) -> float:
        return 1.0

    def grid(self) -> float:
        return 1.0 / 64

    def event(self) -> Event:
        return SampledGaussian(self.noise_multiplier)
