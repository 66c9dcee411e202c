"""The common form of queries, and their canonical bytes."""

from __future__ import annotations

import hashlib
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import ClassVar

from google.protobuf.message import DecodeError

from silosynth.common.errors import QueryError
from silosynth.common.events import Event
from silosynth.common.layout import Layout
from silosynth.common.schema import Schema
from silosynth.protos.v1 import query_pb2

MAX_QUERY_BYTES = 1 << 20
MAX_VALUES = 1 << 26  # of one release: half a gigabyte of int64
LARGEST_NOISE_STEPS = 2.0**50  # an int64 is then more than 8000 standard deviations wide
MAX_ARTIFACTS = 8  # of one query

_INNER = b"silosynth inner query v1\0"


@dataclass(frozen=True)
class Response:
    """Randomized response in place of Gaussian noise: each row of the answer names one of so many choices, or none.

    A named one is kept with probability `kept`, else one of the others is told; for none, any of them.
    """

    choices: int
    kept: float


@dataclass(frozen=True)
class Plan:
    """What answering a query means: one frozen noun couples layout, sensitivity, grid, noise and event."""

    layout: Layout
    sensitivity: float  # largest L2 change when one record is added or removed, or more of them if the query says so
    grid: float  # released values are integer multiples of this
    noise_std: float
    event: Event
    response: Response | None = None


@dataclass(frozen=True, kw_only=True)
class Query(ABC):
    """A question with only public parameters. Subclasses name a mechanism and describe its release."""

    mechanism: ClassVar[str]  # name of the field in query.proto's oneof
    kinds: ClassVar[dict[str, type[Query]]] = {}
    added_up: ClassVar[bool] = True  # the silos' answers; else they are kept side by side

    schema: Schema
    noise_multiplier: float

    def __init_subclass__(cls) -> None:
        if "mechanism" in vars(cls):  # else it is what several queries have in common
            Query.kinds[cls.mechanism] = cls

    def __post_init__(self) -> None:
        """Checks what every query has; subclasses check their own parameters first."""
        plan = self.plan()
        size, steps = plan.layout.size, plan.noise_std / plan.grid
        require(size <= MAX_VALUES, f"an answer of {size} values is larger than the limit of {MAX_VALUES}")
        require(in_range(steps, 0, LARGEST_NOISE_STEPS), f"noise of {steps:g} grid steps is more than 64 bits can hold")
        self._check_artifacts()

    @abstractmethod
    def layout(self) -> Layout: ...

    @abstractmethod
    def sensitivity(self) -> float: ...

    @abstractmethod
    def grid(self) -> float: ...

    @abstractmethod
    def event(self) -> Event: ...

    def artifacts(self) -> tuple[str, ...]:
        """The public files that answering needs: SHA-256 of each one's bytes, in hexadecimal."""
        return ()

    def backbones(self) -> tuple[str, ...]:
        """Those artifacts that are networks: records pass through them, so a silo allows each by itself."""
        return ()

    def remark(self) -> str:
        """What else there is to say of the guarantee than epsilon for one record added or removed; "" for nothing."""
        return ""

    def passing_artifacts(self) -> tuple[str, ...]:
        """Those artifacts that no other query will name: forgotten once this one is answered."""
        return ()

    def inner_identities(self) -> tuple[bytes, ...]:
        """Of the queries that a silo answers to itself, in order, before it makes this one's answer of theirs.

        They are charged one by one, all together as this query's event. Nobody can ask for them: these bytes are no
        queries. A query without such is charged itself.
        """
        return ()

    @classmethod
    def parameters(cls) -> list[str]:
        """The fields of the mechanism's message in query.proto have the names of the subclass's own fields."""
        return [field.name for field in fields(cls) if field.name not in ("schema", "noise_multiplier")]

    def plan(self) -> Plan:
        event, sensitivity = self.event(), self.sensitivity()
        noise_std = self.noise_multiplier * sensitivity
        return Plan(self.layout(), sensitivity, self.grid(), noise_std, event, self.response())

    def response(self) -> Response | None:
        """How the answer is made private, if not by Gaussian noise."""
        return None

    def _check_artifacts(self) -> None:
        artifacts = self.artifacts()
        require(len(artifacts) <= MAX_ARTIFACTS, f"a query of {len(artifacts)} artifacts: {MAX_ARTIFACTS} are allowed")
        for artifact in artifacts:
            require_digest(artifact, "artifact")
        require(set(self.backbones()) <= set(artifacts), "a backbone of the query is not among its artifacts")


def encode(query: Query) -> bytes:
    """Canonical bytes: protobuf in field order, no unknown fields, no maps."""
    message = query_pb2.Query(schema=query.schema.to_proto(), noise_multiplier=query.noise_multiplier)
    part = getattr(message, query.mechanism)
    part.SetInParent()
    for name in query.parameters():
        setattr(part, name, getattr(query, name))
    return message.SerializeToString(deterministic=True)


def decode(data: bytes) -> Query:
    """Parse and validate; bytes that are not the canonical form of a query are refused."""
    if len(data) > MAX_QUERY_BYTES:
        raise QueryError(f"a query of {len(data)} bytes is larger than the limit of {MAX_QUERY_BYTES}")
    try:
        message = query_pb2.Query.FromString(data)
    except DecodeError as error:
        raise QueryError("these bytes are not a query") from error
    mechanism = message.WhichOneof("mechanism")
    if mechanism is None:
        raise QueryError("the query names no mechanism this version of silosynth knows")
    schema = Schema.from_proto(message.schema)
    kind, part = Query.kinds[mechanism], getattr(message, mechanism)
    parameters = {name: getattr(part, name) for name in kind.parameters()}
    query = kind(schema=schema, noise_multiplier=message.noise_multiplier, **parameters)
    if encode(query) != data:
        raise QueryError("the query is not in canonical form")
    return query


def digest(query: Query | bytes) -> bytes:
    """The identity of a query: the same question has the same digest, whoever asks and in whichever run."""
    return hashlib.sha256(query if isinstance(query, bytes) else encode(query)).digest()


def charges_of(queries: Iterable[Query]) -> list[Event]:
    """What answering all of them costs: those that are made of the same inner queries share their cost."""
    made = dict[tuple[bytes, ...], Event]()
    directly = list[Event]()
    for query in queries:
        if query.inner_identities():
            made[query.inner_identities()] = query.event()
        else:
            directly.append(query.event())
    return [*directly, *made.values()]


def inner_identity(number: int, encoded: bytes) -> bytes:
    """Of the so-many-th query that a silo answers to itself; `encoded` are the bytes of what it is asked for."""
    return _INNER + bytes([number]) + encoded


def require(condition: bool, message: str) -> None:
    if not condition:
        raise QueryError(message)


def is_digest(text: str) -> bool:
    """SHA-256 as we write it; such a text is also a safe name for a file."""
    return re.fullmatch("[0-9a-f]{64}", text) is not None


def require_digest(text: str, what: str) -> None:
    require(is_digest(text), f"{what} {text[:80]!r} is not a SHA-256 digest of 64 lower-case hexadecimal digits")


def in_range(value: float, low: float, high: float) -> bool:
    return math.isfinite(value) and low <= value <= high


def length(*parts: float) -> float:
    """The length of a vector made of parts of these lengths, rounded up: a sensitivity must not lose its last bit."""
    return math.nextafter(math.hypot(*parts), math.inf)


def fine_grid(bound: float, dimension: int) -> float:
    """A power of two at most 1/256 of a typical coordinate of a vector of length `bound`.

    Records are cut to the grid towards zero, so a clipped record stays within its bound.
    """
    return float(2.0 ** math.floor(math.log2(bound / math.sqrt(dimension) / 256)))
