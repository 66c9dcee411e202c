"""Privacy events: the nouns a ledger stores. Epsilon is computed from them, never stored."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeVar

from silosynth.common.errors import QueryError
from silosynth.protos.v1 import release_pb2

_LEAST_PRECISION = 1e-18


@dataclass(frozen=True)
class SampledGaussian:
    """`count` compositions of a Gaussian mechanism on an independent Poisson sample of the records.

    Add/remove adjacency. `noise_multiplier` is the noise's standard deviation over the L2 sensitivity;
    0 means no noise, hence no privacy. `sampling_probability` 1 is the plain Gaussian mechanism.
    """

    noise_multiplier: float
    sampling_probability: float = 1.0
    count: int = 1

    def __post_init__(self) -> None:
        _check(self.noise_multiplier, self.count)
        if not 0 < self.sampling_probability <= 1:
            raise QueryError(f"sampling probability {self.sampling_probability} is not in (0, 1]")

    def to_proto(self) -> release_pb2.Event:
        return release_pb2.Event(
            sampled_gaussian=release_pb2.SampledGaussian(
                noise_multiplier=self.noise_multiplier,
                sampling_probability=self.sampling_probability,
                count=self.count,
            )
        )


@dataclass(frozen=True)
class LabelResponse:
    """`count` times the labels of all records, each by randomized response of its own.

    Neighbours differ by one record's label; everything else about records counts as public. This is a weaker statement
    than one about records, and does not add up with those. It is pure: epsilon is 1 / `noise_multiplier`, whatever
    delta is; 0 means no noise.
    """

    noise_multiplier: float
    count: int = 1

    def __post_init__(self) -> None:
        _check(self.noise_multiplier, self.count)

    @property
    def sampling_probability(self) -> float:
        return 1.0

    @property
    def epsilon(self) -> float:
        return self.count / self.noise_multiplier if self.noise_multiplier else math.inf

    def to_proto(self) -> release_pb2.Event:
        response = release_pb2.LabelResponse(noise_multiplier=self.noise_multiplier, count=self.count)
        return release_pb2.Event(label_response=response)


def _check(noise_multiplier: float, count: int) -> None:
    if not (math.isfinite(noise_multiplier) and noise_multiplier >= 0):
        raise QueryError(f"noise multiplier {noise_multiplier} is not a finite number >= 0")
    if not 1 <= count < 1 << 63:
        raise QueryError(f"{count} compositions are out of range")


Event = SampledGaussian | LabelResponse  # what accounting counts
_Kind = TypeVar("_Kind", SampledGaussian, LabelResponse, Event)


@dataclass(frozen=True)
class PostProcessing:
    """Made of nothing but earlier entries of the same ledger, which were charged then: it adds nothing to them.

    `cost` is that of these entries together, for whoever sees only what was made of them; `sources` are their hashes.
    """

    cost: Event
    sources: tuple[bytes, ...]

    def __post_init__(self) -> None:
        if not self.sources or len(set(self.sources)) != len(self.sources):
            raise QueryError("what was made of other releases names each of them once")

    def to_proto(self) -> release_pb2.Event:
        cost, made = self.cost.to_proto(), release_pb2.PostProcessing(sources=self.sources)
        if isinstance(self.cost, LabelResponse):
            made.labels.CopyFrom(cost.label_response)
        else:
            made.cost.CopyFrom(cost.sampled_gaussian)
        return release_pb2.Event(post_processing=made)


Charge = Event | PostProcessing  # what an entry of a ledger states


def from_proto(message: release_pb2.Event) -> Charge:
    """An event of unknown kind is an error: what cannot be accounted must not be counted as free."""
    kind = message.WhichOneof("kind")
    if kind == "sampled_gaussian":
        return _gaussian(message.sampled_gaussian)
    if kind == "label_response":
        return _response(message.label_response)
    if kind == "post_processing":
        made = message.post_processing
        cost = _response(made.labels) if made.HasField("labels") else _gaussian(made.cost)
        return PostProcessing(cost, tuple(made.sources))
    raise QueryError("unknown kind of privacy event: upgrade silosynth before serving this ledger")


def _gaussian(message: release_pb2.SampledGaussian) -> SampledGaussian:
    return SampledGaussian(message.noise_multiplier, message.sampling_probability, message.count)


def _response(message: release_pb2.LabelResponse) -> LabelResponse:
    return LabelResponse(message.noise_multiplier, message.count)


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
    if of_labels([*events, whole]) or any(
        event.sampling_probability != 1 or event.noise_multiplier == 0 for event in (*events, whole)
    ):
        return False
    return sum(map(_precision, events)) <= _precision(whole)


def left_of(whole: Event, paid: Iterable[Event]) -> Event:
    """What is still to be paid of `whole`, up to rounding, when these parts of it were."""
    parts = list(paid)
    if whole.noise_multiplier == 0 or not parts or isinstance(whole, LabelResponse):
        return whole
    left = float(_precision(whole) - sum(map(_precision, parts)))
    return SampledGaussian(1 / math.sqrt(max(left, _LEAST_PRECISION)))


def _precision(event: Event) -> Fraction:
    return event.count / Fraction(event.noise_multiplier) ** 2


def charged(charges: Iterable[Charge]) -> Iterator[Event]:
    """What the entries of one whole ledger add up to: each source once, nothing for what was made of it."""
    return (charge for charge in charges if not isinstance(charge, PostProcessing))


def seen_together(charges: Iterable[Charge]) -> list[Event]:
    """What was paid for all of these: for things made of the same entries, what those cost, once."""
    made, directly = set[PostProcessing](), list[Event]()
    for charge in charges:
        if isinstance(charge, PostProcessing):
            made.add(charge)
        else:
            directly.append(charge)
    return [*directly, *sorted((charge.cost for charge in made), key=_order)]


def merge(events: Iterable[_Kind]) -> tuple[_Kind, ...]:
    """The same composition with equal events counted together, in a canonical order."""
    counts: Counter[_Kind] = Counter()
    for event in events:
        counts[replace(event, count=1)] += event.count
    return tuple(replace(kind, count=counts[kind]) for kind in sorted(counts, key=_order))


def of_labels(events: Iterable[Event]) -> bool:
    """Whether any of them protects labels only."""
    return any(isinstance(event, LabelResponse) for event in events)


def _order(event: Event) -> tuple[bool, float, float, int]:
    return isinstance(event, LabelResponse), event.noise_multiplier, event.sampling_probability, event.count
