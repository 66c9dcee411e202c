"""Scores: how well a public model, trained on synthetic records, does on a silo's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from silosynth.common.events import Event, SampledGaussian
from silosynth.common.layout import Layout
from silosynth.common.queries.base import Query, length, require


@dataclass(frozen=True, kw_only=True)
class Scores(Query):
    """A record of class c adds 1 to records[c], and 1 to correct[c] if the model takes it for one of that class."""

    mechanism: ClassVar[str] = "scores"

    model: str

    def __post_init__(self) -> None:
        require(self.schema.is_image, "a model looks at images, these records are rows")
        super().__post_init__()

    def artifacts(self) -> tuple[str, ...]:
        return (self.model,)

    def backbones(self) -> tuple[str, ...]:
        return (self.model,)

    def layout(self) -> Layout:
        return Layout.of(correct=(self.schema.classes,), records=(self.schema.classes,))

    def sensitivity(self) -> float:
        return length(1.0, 1.0)

    def grid(self) -> float:
        return 1.0 / 64

    def event(self) -> Event:
        return SampledGaussian(self.noise_multiplier)
