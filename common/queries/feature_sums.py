"""Feature sums: per class, clipped features of Poisson-sampled records, through networks drawn from a seed or given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from silosynth.common.events import Event, SampledGaussian
from silosynth.common.layout import Layout
from silosynth.common.networks.shapes import embedding_size
from silosynth.common.queries.base import Query, fine_grid, in_range, length, require

NETWORKS = ("convnet", "linear", "fourier")
AUGMENTATIONS = ("color", "crop", "cutout", "flip", "scale", "rotate")

_LARGEST_WIDTH = {"convnet": 1024, "linear": 1024, "fourier": 1 << 14}
_SIGNALS_END = 1 << 32


@dataclass(frozen=True, kw_only=True)
class FeatureSums(Query):
    """Signals `first` to `first + signals - 1`: each has a network and an augmentation of its own.

    A record x of class c adds (clip(features(x)), kappa) to row c of every signal that draws it. With a projection,
    features are centred at the auxiliary records' mean and taken along their principal components.

    Networks are drawn from the seed, or are those of a file, in turn. They need no trust: whatever they say of a record
    is cut to the same length.
    """

    mechanism: ClassVar[str] = "feature_sums"

    first: int
    signals: int
    sampling_probability: float
    network: str
    width: int
    seed: int
    augmentation: str
    projected: int
    auxiliary: str
    clip: float
    count_weight: float
    length_scale: float = 0.0
    weights: str = ""

    def __post_init__(self) -> None:
        require(0 <= self.first <= _SIGNALS_END - self.signals, f"no signal is numbered {self.first + self.signals}")
        require(0 <= self.seed < 1 << 64, f"seed {self.seed} is not in [0, 2^64)")
        self._check_network()
        self._check_augmentation()
        self._check_projection()
        require(in_range(self.clip, 1e-6, 1e6), f"clip {self.clip} is not in [1e-6, 1e6]")
        require(in_range(self.count_weight, 1e-6 * self.clip, 1e3 * self.clip), "count weight is out of range")
        super().__post_init__()

    def _check_network(self) -> None:
        require(self.network in NETWORKS, f"network {self.network!r} is none of {', '.join(NETWORKS)}")
        require(self.network != "convnet" or self.schema.is_image, "a convnet takes images, these records are rows")
        largest = _LARGEST_WIDTH[self.network]
        require(1 <= self.width <= largest, f"width {self.width} is not in [1, {largest}]")
        if self.network == "fourier":
            require(self.width % 2 == 0, f"random Fourier features come in pairs, {self.width} is odd")
            require(in_range(self.length_scale, 1e-3, 1e3), f"length scale {self.length_scale} is not in [1e-3, 1e3]")
        else:
            require(self.length_scale == 0, "only Fourier features have a length scale")
        require(self.network == "convnet" or not self.weights, "weights are for convnets, others are drawn")

    def _check_augmentation(self) -> None:
        names = self.augmentation.split(",") if self.augmentation else []
        known = len(set(names)) == len(names) and set(names) <= set(AUGMENTATIONS)
        require(known, f"augmentation {self.augmentation!r} is no choice among {','.join(AUGMENTATIONS)}")
        require(not names or self.schema.is_image, "only images can be augmented, these records are rows")

    def _check_projection(self) -> None:
        largest = embedding_size(self.network, self.schema, self.width)
        require(0 <= self.projected <= largest, f"a basis of {self.projected} for features of {largest} dimensions")
        require(self.projected > 0 or not self.auxiliary, "auxiliary records are of no use without a projection")
        procedural = self.projected > 0 and not self.auxiliary
        require(self.schema.is_image or not procedural, "a projection of rows needs auxiliary records")

    @property
    def dimension(self) -> int:
        """Of the vector that is clipped and summed."""
        return self.projected or embedding_size(self.network, self.schema, self.width)

    def artifacts(self) -> tuple[str, ...]:
        return tuple(name for name in (self.auxiliary, self.weights) if name)

    def layout(self) -> Layout:
        per_class = (self.signals, self.schema.classes)
        return Layout.of(sums=(*per_class, self.dimension), counts=per_class)

    def sensitivity(self) -> float:
        """Of one signal; the event counts that a record may enter all of them."""
        return length(self.clip, self.count_weight)

    def grid(self) -> float:
        """Fine enough for a typical coordinate (1/256 of it) and for the counting coordinate (1/16 at the least)."""
        return fine_grid(min(self.clip, self.count_weight * 16), self.dimension)

    def count_step(self) -> int:
        """What one record adds to its count, in grid steps: divide released counts by this times the grid."""
        return int(self.count_weight / self.grid())

    def event(self) -> Event:
        return SampledGaussian(self.noise_multiplier, self.sampling_probability, self.signals)
