"""Gradient sums: clipped gradients of Poisson-sampled records, at the weights of a public network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from silosynth.common.events import Event, SampledGaussian
from silosynth.common.layout import Layout
from silosynth.common.networks.shapes import ConvNetShape
from silosynth.common.queries.base import Query, fine_grid, in_range, require

_LARGEST_WIDTH = 1024


@dataclass(frozen=True, kw_only=True)
class GradientSums(Query):
    """A drawn record adds the gradient of its cross-entropy, cut to the length `clip`: one step of DP-SGD.

    The weights need no trust: whatever gradient they give a record is cut to the same length.
    """

    mechanism: ClassVar[str] = "gradient_sums"

    width: int
    weights: str
    sampling_probability: float
    clip: float

    def __post_init__(self) -> None:
        require(self.schema.is_image, "a convnet takes images, these records are rows")
        require(1 <= self.width <= _LARGEST_WIDTH, f"width {self.width} is not in [1, {_LARGEST_WIDTH}]")
        require(in_range(self.clip, 1e-6, 1e6), f"clip {self.clip} is not in [1e-6, 1e6]")
        super().__post_init__()

    def artifacts(self) -> tuple[str, ...]:
        return (self.weights,)

    def passing_artifacts(self) -> tuple[str, ...]:
        return (self.weights,)

    def layout(self) -> Layout:
        return Layout.of(gradient=(ConvNetShape.of(self.schema, self.width).parameters(self.schema.classes),))

    def sensitivity(self) -> float:
        return self.clip

    def grid(self) -> float:
        return fine_grid(self.clip, self.layout().size)

    def event(self) -> Event:
        return SampledGaussian(self.noise_multiplier, self.sampling_probability)
