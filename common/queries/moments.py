"""Moments of a public network's activations: of all records at every layer, of each class at the last ones (SPS)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from silosynth.common.events import Event, SampledGaussian
from silosynth.common.layout import Layout
from silosynth.common.queries.base import Query, in_range, length, require

LARGEST_DIMENSION = 1024
LARGEST_GROUPS = 1 << 14
LARGEST_MEMBERSHIP = 1 << 24  # groups times classes
ARITHMETIC_SLACK = 2.0**-8  # of the bound; client/mechanisms/moments.py says what it pays for
ROUNDING_SLACK = 2.0**-12  # of the bound: by how much rounding to the grid may move the whole vector


@dataclass(frozen=True, kw_only=True)
class Moments(Query):
    """A record adds v - center, cut to a length of K sqrt(2 L Dlay(D_G)), and kappa times that to its class's count.

    v holds mean and upper triangle of the second moment of the record's activations, projected to D_G channels and
    squashed to [-1, 1], at all L taps of the backbone. The same follows with D_C channels at the last |L_C| taps for
    every pseudo-class that holds the record's class, times sqrt(S), so that a class weighs as much as all layers do.
    """

    mechanism: ClassVar[str] = "moments"

    backbone: str
    layers: int
    global_dimension: int
    class_dimension: int
    class_layers: int
    pseudo_classes: int
    classes_per_pseudo_class: int
    seed: int
    clip: float
    count_weight: float
    center: str

    def __post_init__(self) -> None:
        require(self.schema.is_image, f"moments are taken of images, not of records of shape {self.schema.shape}")
        require(1 <= self.layers <= 256, f"{self.layers} layers are not in 1..256")
        require(1 <= self.class_layers <= self.layers, f"{self.class_layers} class layers, {self.layers} layers")
        for dimension in (self.global_dimension, self.class_dimension):
            require(1 <= dimension <= LARGEST_DIMENSION, f"dimension {dimension} is not in 1..{LARGEST_DIMENSION}")
        require(in_range(self.clip, 2.0**-8, 2.0**4), f"clip {self.clip} is not in [2^-8, 2^4]")
        require(in_range(self.count_weight, 2.0**-6, 2.0**6), f"count weight {self.count_weight} is not in [2^-6, 2^6]")
        require(0 <= self.seed < 1 << 64, f"seed {self.seed} is not in 0..2^64 - 1")
        self._check_pseudo_classes()
        super().__post_init__()

    def layout(self) -> Layout:
        return Layout((*self.moments_layout().blocks, ("counts", (self.schema.classes,))))

    def moments_layout(self) -> Layout:
        """All but the counts; second moments are upper triangles, row by row."""
        per_class = (self.groups, self.class_layers)
        return Layout.of(
            means=(self.layers, self.global_dimension),
            seconds=(self.layers, triangle_size(self.global_dimension)),
            class_means=(*per_class, self.class_dimension),
            class_seconds=(*per_class, triangle_size(self.class_dimension)),
        )

    @property
    def groups(self) -> int:
        """Of records that have moments of their own: pseudo-classes, or the classes themselves."""
        return self.pseudo_classes or self.schema.classes

    @property
    def class_scale(self) -> float:
        """sqrt(S)."""
        return math.sqrt(self._global_size / (self.class_layers * layer_size(self.class_dimension)))

    @property
    def bound(self) -> float:
        """What the moments of one record are clipped to."""
        return self.clip * math.sqrt(2 * self._global_size)

    def sensitivity(self) -> float:
        return length(self.bound * (1 + ARITHMETIC_SLACK + ROUNDING_SLACK), self.count_weight * self.bound)

    def grid(self) -> float:
        """sqrt(d) * grid is at most the rounding slack."""
        step = ROUNDING_SLACK * self.bound / math.sqrt(self.moments_layout().size)
        return float(2.0 ** math.floor(math.log2(step)))

    def count_step(self) -> int:
        """What one record adds to its count, in grid steps: divide released counts by this times the grid."""
        return int(self.count_weight * self.bound / self.grid())

    def event(self) -> Event:
        return SampledGaussian(self.noise_multiplier)

    def artifacts(self) -> tuple[str, ...]:
        return (self.backbone, self.center) if self.center else (self.backbone,)

    def backbones(self) -> tuple[str, ...]:
        return (self.backbone,)

    @property
    def _global_size(self) -> int:
        return self.layers * layer_size(self.global_dimension)

    def _check_pseudo_classes(self) -> None:
        groups, members, classes = self.pseudo_classes, self.classes_per_pseudo_class, self.schema.classes
        require((groups == 0) == (members == 0), f"{groups} pseudo-classes of {members} classes: neither or both are 0")
        require(0 <= groups <= LARGEST_GROUPS, f"{groups} pseudo-classes are not in 0..{LARGEST_GROUPS}")
        require(self.groups * classes <= LARGEST_MEMBERSHIP, f"{classes} classes in {self.groups} groups are too many")
        require(0 <= members <= classes, f"a pseudo-class of {members} classes, but there are {classes}")
        balanced = groups * members % classes == 0
        require(balanced, f"{groups} pseudo-classes of {members} classes do not hold {classes} classes equally often")


def triangle_size(dimension: int) -> int:
    return dimension * (dimension + 1) // 2


def layer_size(dimension: int) -> int:
    """Dlay(D): mean and upper triangle of the second moment."""
    return dimension + triangle_size(dimension)
