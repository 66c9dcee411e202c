"""Privacy events: the nouns a ledger stores. Epsilon is computed from them, never stored."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from silosynth.common.errors import QueryError
from silosynth.protos.v1 import release_pb2


@dataclass(frozen=True, order=True)
class SampledGaussian:
    """`count` compositions of a Gaussian mechanism on an independent Poisson sample of the records.

    Add/remove adjacency. `noise_multiplier` is the noise's standard deviation over the L2 sensitivity;
    0 means no noise, hence no privacy. `sampling_probability` 1 is the plain Gaussian mechanism.
    """

    noise_multiplier: float
    sampling_probability: float = 1.0
    count: int = 1

    def __post_init__(self) -> None:
        if not (math.isfinite(self.noise_multiplier) and self.noise_multiplier >= 0):
            raise QueryError(f"noise multiplier {self.noise_multiplier} is not a finite number >= 0")
        if not 0 < self.sampling_probability <= 1:
            raise QueryError(f"sampling probability {self.sampling_probability} is not in (0, 1]")
        if not 1 <= self.count < 1 << 63:
            raise QueryError(f"{self.count} compositions are out of range")

    def to_proto(self) -> release_pb2.Event:
        return release_pb2.Event(
            sampled_gaussian=release_pb2.SampledGaussian(
                noise_multiplier=self.noise_multiplier,
                sampling_probability=self.sampling_probability,
                count=self.count,
            )
        )


Event = SampledGaussian  # becomes a union when a mechanism brings another kind


def from_proto(message: release_pb2.Event) -> Event:
    """An event of unknown kind is an error: what cannot be accounted must not be counted as free."""
    if message.WhichOneof("kind") != "sampled_gaussian":
        raise QueryError("unknown kind of privacy event: upgrade silosynth before serving this ledger")
    gaussian = message.sampled_gaussian
    return SampledGaussian(gaussian.noise_multiplier, gaussian.sampling_probability, gaussian.count)


def merge(events: Iterable[Event]) -> tuple[Event, ...]:
    """The same composition with equal events counted together, in a canonical order."""
    counts: Counter[tuple[float, float]] = Counter()
    for event in events:
        counts[event.noise_multiplier, event.sampling_probability] += event.count
    return tuple(SampledGaussian(*kind, count) for kind, count in sorted(counts.items()))
