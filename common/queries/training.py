"""What queries for the weights of a small classifier, trained in a silo, have in common."""

from __future__ import annotations

from dataclasses import dataclass

from silosynth.common.layout import Layout
from silosynth.common.networks.shapes import CLASSIFIERS, classifier_size
from silosynth.common.queries.base import Query, require
from silosynth.common.schema import Schema

_MOST_STEPS = 100_000  # a server must not keep a silo busy for ever
_MOST_FEATURES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Training(Query):
    """What makes the weights private is in them already when they come to be: nothing is to be added to them."""

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
        seen = self.features or self.schema.dimension
        return Layout.of(weights=(classifier_size(self.network, self.schema, seen),))

    def sensitivity(self) -> float:
        return 0.0

    def grid(self) -> float:
        return 2.0**-16


def check_training(seed: int, steps: int) -> None:
    require(0 <= seed < 1 << 64, f"seed {seed} is not in [0, 2^64)")
    require(1 <= steps <= _MOST_STEPS, f"{steps} steps are not in 1..{_MOST_STEPS}")


def check_network(schema: Schema, network: str, backbone: str, features: int) -> None:
    """Of a classifier that is trained in the silo."""
    require(network in CLASSIFIERS, f"network {network[:80]!r} is none of {', '.join(CLASSIFIERS)}")
    require(network != "convnet" or schema.is_image, "a convnet takes images, these records are rows")
    require(not backbone or schema.is_image, "a backbone looks at images, these records are rows")
    require(network != "convnet" or not backbone, "a convnet sees the images themselves: it takes no backbone")
    require(bool(backbone) == bool(features), "features are those of a backbone: there are both or neither")
    require(0 <= features <= _MOST_FEATURES, f"{features} features are not in 0..{_MOST_FEATURES}")
