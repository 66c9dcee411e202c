"""What NDPDC and Dosser share: how signals are asked for, what is known from them, how records start and end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field
from torch import Tensor

from silosynth.common.accounting import calibrate, epsilon
from silosynth.common.config import Choices
from silosynth.common.errors import ConfigError
from silosynth.common.events import Event, SampledGaussian
from silosynth.common.procedural.dice import Dice
from silosynth.common.queries import FeatureSums
from silosynth.common.schema import Schema
from silosynth.server.recipes.base import Array, Product, Summed, Task
from silosynth.server.recipes.outlook import Crowd, Outlook, noise_of_class_means
from silosynth.server.synthesis.denoise import denoised_counts

_START = 0.1  # standard deviation: enough to set records apart, too little to be seen in them
_BEARABLE = 0.6  # measured on digits: 88 % of what is learned without noise was kept at 0.32, 15 % at 0.92
_VALUES_A_QUERY = 1 << 22  # more signals are asked for in rounds, which bounds a silo's memory and a failure's cost


class SignalParameters(Choices):
    """The papers: 10,000 signals, a rate of 50 / N_c, width 128.

    At a given epsilon the sums tell about the same whatever the number of signals and the rate, unless both are small;
    more of either costs the silos time, which grows with their product. A width of 128 takes ten times that of 32.
    """

    records_per_class: int = Field(10, ge=1, le=10_000, description="M, synthetic records per class")
    signals: int = Field(200, ge=1, le=1_000_000, description="I1, networks through which records are seen")
    sampling_probability: float = Field(0.03, gt=0, le=1, description="q, one public rate for all classes")
    width: int | None = Field(None, ge=1, le=1024, description="of the networks; default: 32, for tables 64")
    augmentation: str = Field("color,crop,cutout,scale,rotate", description="of images; add flip where it fits")
    clip: float = Field(1.0, gt=0, description="length to which the features of a record are cut")
    count_weight: float = Field(0.15, gt=0, le=10, description="kappa: the counting coordinate's share of the clip")
    noise_multiplier: float | None = Field(None, ge=0, description="z; default: what the run's epsilon asks for")
    learning_rate: float = Field(0.1, gt=0, description="of Adam at first, for records in [-1, 1]; falls to nothing")

    def queries(self, task: Task, z: float, projected: int = 0, auxiliary: str = "") -> list[FeatureSums]:
        """All signals, in rounds of as many as fit one query."""
        schema = task.schema
        first = FeatureSums(
            schema=schema,
            noise_multiplier=z,
            first=0,
            signals=1,
            sampling_probability=self.sampling_probability,
            network=_network(schema),
            width=self.width or (32 if schema.is_image else 64),
            seed=task.seed,
            augmentation=self.augmentation if schema.is_image else "",
            projected=projected,
            auxiliary=auxiliary,
            clip=self.clip,
            count_weight=self.count_weight * self.clip,
        )
        return in_rounds(first, self.signals)

    def outlook(self, queries: list[FeatureSums], crowd: Crowd, steps: int) -> Outlook:
        """Of what all signals tell together; `steps` gradient steps look at every synthetic record."""
        query = queries[0]
        noise = noise_of_class_means(
            query,
            crowd,
            dimension=query.dimension,
            bound=query.clip,
            rate=query.sampling_probability,
            repeats=self.signals,
        )
        drawn = round(self.signals * self.sampling_probability * crowd.records)
        return Outlook(queries, noise, _BEARABLE, drawn, steps * self.records_per_class * query.schema.classes)

    def noise_for(self, task: Task) -> float:
        """The z that is set, if the run can pay for it, or that which the run's epsilon asks for."""

        def events(z: float) -> list[Event]:
            return [SampledGaussian(z, self.sampling_probability, self.signals)]

        z = self.noise_multiplier
        if z is None:
            return calibrate(events, task.epsilon, task.delta)
        spent = epsilon(events(z), task.delta)
        if spent > task.epsilon:
            raise ConfigError(f"noise_multiplier = {z:g} spends epsilon {spent:.3f}, the run has {task.epsilon:g}")
        return z


def in_rounds(query: FeatureSums, signals: int) -> list[FeatureSums]:
    """From the first signal alone to so many of them, as many at a time as fit one query."""
    largest = max(_VALUES_A_QUERY // (query.schema.classes * (query.dimension + 1)), 1)
    return [replace(query, first=first, signals=min(largest, signals - first)) for first in range(0, signals, largest)]


def _network(schema: Schema) -> str:
    return "convnet" if schema.is_image else "linear"


@dataclass
class Evidence:
    """What the silos released: noisy sums by index of signal, and noisy counts of all signals together."""

    device: torch.device
    _sums: dict[int, Tensor] = field(default_factory=dict)
    _signals: int = 0
    _counts: Array = field(default_factory=lambda: np.zeros(1))
    _count_variance: float = 0.0

    def add(self, query: FeatureSums, summed: Summed) -> None:
        one_record = query.count_step() * query.grid()
        self._sums |= enumerate(torch.from_numpy(summed.blocks["sums"]).float(), query.first)
        self._signals += query.signals
        self._counts = self._counts + summed.blocks["counts"].sum(axis=0) / one_record
        self._count_variance += query.signals * summed.noise_variance / one_record**2

    def sums(self, index: int) -> Tensor:
        return self._sums[index].to(self.device)

    def drawn(self) -> Tensor:
        """How many records of each class one signal is expected to draw: its own counts are mostly noise."""
        counts = denoised_counts(self._counts, self._count_variance)
        return torch.from_numpy(counts / self._signals).float().to(self.device)


def proportional_sizes(shares: Tensor, total: int) -> list[int]:
    """`total` records divided among classes in proportion to `shares`, one to each at the least."""
    wished = shares.double() / shares.sum() * (total - len(shares))
    sizes = wished.floor().long() + 1
    largest_remainders = (wished - wished.floor()).argsort(descending=True, stable=True)
    sizes[largest_remainders[: total - int(sizes.sum())]] += 1
    return [int(size) for size in sizes]


def faint_noise(schema: Schema, count: int, seed: int) -> Tensor:
    """Records to start from, as networks take them."""
    height, width, channels = schema.shape if schema.is_image else (schema.dimension, 1, 1)
    drawn = _START * Dice(seed, count).normal(count, channels, height, width)
    return drawn if schema.is_image else drawn.flatten(1)


def in_any_order(signals: int, seed: int) -> Iterator[int]:
    """All signals in a random order, then in another, for ever."""
    for number in count():
        yield from Dice(seed, number).uniform(signals).argsort().tolist()


def product(inputs: Tensor, sizes: Sequence[int], schema: Schema) -> Product:
    """Of records sorted by class, so many of each, cut to [-1, 1]."""
    records = inputs.detach().cpu().clamp(-1, 1)
    if schema.is_image:
        records = records.permute(0, 2, 3, 1)
    return Product(records.contiguous().numpy(), np.repeat(np.arange(schema.classes), sizes))


def report(task: Task, share: float, loss: Tensor, inputs: Callable[[], Tensor], sizes: Sequence[int]) -> None:
    """How far the records are, and when asked, what they look like."""

    def sketch() -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        made = product(inputs(), sizes, task.schema)
        return made.features, made.labels

    task.workplace.report(share, float(loss.detach()), sketch)
