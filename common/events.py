"""Privacy events: the nouns a ledger stores. Epsilon is computed from them, never stored."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction

from silosynth.common.errors import QueryError
from silosynth.protos.v1 import release_pb2

_LEAST_PRECISION = 1e-18


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


@dataclass(frozen=True)
class PostProcessing:
    """Made of nothing but earlier entries of the same ledger, which were charged then: it adds nothing to them.

    `cost` is that of these entries together, for whoever sees only what was made of them; `sources` are their hashes.
    """

    cost: SampledGaussian
    sources: tuple[bytes, ...]

    def __post_init__(self) -> None:
        if not self.sources or len(set(self.sources)) != len(self.sources):
            raise QueryError("what was made of other releases names each of them once")

    def to_proto(self) -> release_pb2.Event:
        cost = self.cost.to_proto().sampled_gaussian
        return release_pb2.Event(post_processing=release_pb2.PostProcessing(cost=cost, sources=self.sources))


Event = SampledGaussian  # what accounting counts
Charge = SampledGaussian | PostProcessing  # what an entry of a ledger states


def from_proto(message: release_pb2.Event) -> Charge:
    """An event of unknown kind is an error: what cannot be accounted must not be counted as free."""
    kind = message.WhichOneof("kind")
    if kind == "sampled_gaussian":
        return _gaussian(message.sampled_gaussian)
    if kind == "post_processing":
        made = message.post_processing
        return PostProcessing(_gaussian(made.cost), tuple(made.sources))
    raise QueryError("unknown kind of privacy event: upgrade silosynth before serving this ledger")


def _gaussian(message: release_pb2.SampledGaussian) -> SampledGaussian:
    return SampledGaussian(message.noise_multiplier, message.sampling_probability, message.count)


def cost(charge: Charge) -> Event:
    """Of a release seen by itself."""
    return charge.cost if isinstance(charge, PostProcessing) else charge


def within(parts: Iterable[Event], whole: Event) -> bool:
    """Whether mechanisms together cost no more than the one that `whole` is, exactly.

    Gaussian ones compose to one whose 1 / z^2 is the sum of theirs; a sampled one can only be `whole` itself.
    """
    events = list(parts)
    if whole.noise_multiplier == 0 or events == [whole]:
        return True
    if any(event.sampling_probability != 1 or event.noise_multiplier == 0 for event in (*events, whole)):
        return False
    return sum(map(_precision, events)) <= _precision(whole)


def left_of(whole: Event, paid: Iterable[Event]) -> Event:
    """What is still to be paid of `whole`, up to rounding, when these parts of it were."""
    parts = list(paid)
    if whole.noise_multiplier == 0 or not parts:
        return whole
    left = float(_precision(whole) - sum(map(_precision, parts)))
    return SampledGaussian(1 / math.sqrt(max(left, _LEAST_PRECISION)))


def _precision(event: Event) -> Fraction:
    return event.count / Fraction(event.noise_multiplier) ** 2


def charged(charges: Iterable[Charge]) -> Iterator[Event]:
    """What the entries of one whole ledger add up to: each source once, nothing for what was made of it."""
    return (charge for charge in charges if isinstance(charge, SampledGaussian))


def seen_together(charges: Iterable[Charge]) -> list[Event]:
    """What was paid for all of these: for things made of the same entries, what those cost, once."""
    made, directly = set[PostProcessing](), list[Event]()
    for charge in charges:
        if isinstance(charge, PostProcessing):
            made.add(charge)
        else:
            directly.append(charge)
    return [*directly, *sorted(charge.cost for charge in made)]


def merge(events: Iterable[Event]) -> tuple[Event, ...]:
    """The same composition with equal events counted together, in a canonical order."""
    counts: Counter[tuple[float, float]] = Counter()
    for event in events:
        counts[event.noise_multiplier, event.sampling_probability] += event.count
    return tuple(SampledGaussian(*kind, count) for kind, count in sorted(counts.items()))
