"""Private training: the weights of a small classifier, learned from the records by DP-SGD."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from silosynth.common.events import Event, SampledGaussian
from silosynth.common.layout import Layout
from silosynth.common.networks.shapes import CLASSIFIERS, classifier_size
from silosynth.common.queries.base import Query, in_range, require
from silosynth.common.schema import Schema

MOST_STEPS = 100_000  # a server must not keep a silo busy for ever
WEIGHT_GRID = 2.0**-16

_MOST_FEATURES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class PrivateTraining(Query):
    """`steps` times: a Poisson sample of the records, their clipped gradients summed, noise, one step of Adam.

    The noise is in the weights already when they come to be: given it, no record moves them further.
    """

    mechanism: ClassVar[str] = "private_training"

    network: str
    backbone: str
    seed: int
    steps: int
    sampling_probability: float
    clip: float
    features: int

    def __post_init__(self) -> None:
        check_network(self.schema, self.network, self.backbone, self.features)
        check_training(self.seed, self.steps)
        require(in_range(self.clip, 1e-3, 1e3), f"clip {self.clip} is not in [1e-3, 1e3]")
        super().__post_init__()

    def artifacts(self) -> tuple[str, ...]:
        return (self.backbone,) if self.backbone else ()

    def backbones(self) -> tuple[str, ...]:
        return self.artifacts()

    def layout(self) -> Layout:
        seen = self.features or self.schema.dimension
        return Layout.of(weights=(classifier_size(self.network, self.schema, seen),))

    def sensitivity(self) -> float:
        return 0.0

    def grid(self) -> float:
        return WEIGHT_GRID

    def event(self) -> Event:
        return SampledGaussian(self.noise_multiplier, self.sampling_probability, self.steps)


def check_training(seed: int, steps: int) -> None:
    require(0 <= seed < 1 << 64, f"seed {seed} is not in [0, 2^64)")
    require(1 <= steps <= MOST_STEPS, f"{steps} steps are not in 1..{MOST_STEPS}")


def check_network(schema: Schema, network: str, backbone: str, features: int) -> None:
    """Of a classifier that is trained in the silo."""
    require(network in CLASSIFIERS, f"network {network[:80]!r} is none of {', '.join(CLASSIFIERS)}")
    require(network != "convnet" or schema.is_image, "a convnet takes images, these records are rows")
    require(not backbone or schema.is_image, "a backbone looks at images, these records are rows")
    require(network != "convnet" or not backbone, "a convnet sees the images themselves: it takes no backbone")
    require(bool(backbone) == bool(features), "features are those of a backbone: there are both or neither")
    require(0 <= features <= _MOST_FEATURES, f"{features} features are not in 0..{_MOST_FEATURES}")
