"""Private training: the weights of a small classifier, learned from the records by DP-SGD."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from silosynth.common.events import Event, SampledGaussian
from silosynth.common.queries.base import in_range, require
from silosynth.common.queries.training import Training


@dataclass(frozen=True, kw_only=True)
class PrivateTraining(Training):
    """`steps` times: a Poisson sample of the records, their clipped gradients summed, noise, one step of Adam."""

    mechanism: ClassVar[str] = "private_training"

    sampling_probability: float
    clip: float

    def __post_init__(self) -> None:
        require(in_range(self.clip, 1e-3, 1e3), f"clip {self.clip} is not in [1e-3, 1e3]")
        super().__post_init__()

    def event(self) -> Event:
        return SampledGaussian(self.noise_multiplier, self.sampling_probability, self.steps)
