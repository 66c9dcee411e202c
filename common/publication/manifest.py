"""manifest.json: every file with its digest, and the silos' own signed word for what the release cost them.

Queries, receipts and heads are protobuf messages in protobuf's JSON form: readable, and exact to the bit.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar

from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from google.protobuf.message import Message
from pydantic import Field, ValidationError

from silosynth.common.config import Section
from silosynth.common.errors import SilosynthError, VerificationFailed
from silosynth.common.heads import Head
from silosynth.common.publication.files import FileFacts, FileName
from silosynth.common.publication.names import NAME_PATTERN, ReleaseName
from silosynth.common.publication.signature import MANIFEST
from silosynth.common.queries import Query, decode, encode
from silosynth.common.releases import Receipt
from silosynth.protos.v1 import guard_pb2, query_pb2, release_pb2

Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Wire = dict[str, Any]
Noun = TypeVar("Noun", Query, Receipt, Head)


class Parent(Section):
    """The version before this one."""

    version: Annotated[int, Field(ge=1)]
    sha256: Digest


class Naming(Section):
    name: Annotated[str, Field(pattern=f"^{NAME_PATTERN}$")]
    version: Annotated[int, Field(ge=1)]
    created: str
    parent: Parent | None

    def __str__(self) -> str:
        return str(ReleaseName(self.name, self.version))


class Code(Section):
    """What made the release: the package's version, and a digest of its source files."""

    silosynth: str
    source_sha256: Digest


class RunFacts(Section):
    name: str
    recipe: str
    config_digest: Digest
    seed: int


class Privacy(Section):
    """JSON knows no infinity: where there was no noise, epsilon is null."""

    unit: str
    delta: Annotated[float, Field(gt=0, lt=1)]
    epsilon_by_silo: dict[str, float | None]
    epsilon_worst: float | None


class Manifest(Section):
    format: Literal[1] = 1
    release: Naming
    code: Code
    run: RunFacts
    classes: tuple[str, ...]
    shape: tuple[int, ...]
    records: Annotated[int, Field(ge=0)]
    privacy: Privacy
    queries: tuple[Wire, ...]
    receipts: tuple[Wire, ...]
    heads: tuple[Wire, ...]
    files: dict[FileName, FileFacts]

    @property
    def size(self) -> int:
        return sum(facts.bytes for facts in self.files.values())

    def to_bytes(self) -> bytes:
        return (json.dumps(self.model_dump(mode="json"), indent=2) + "\n").encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Manifest:
        try:
            return cls.model_validate_json(data)
        except (ValidationError, RecursionError) as error:
            raise VerificationFailed(f"{MANIFEST} is not a manifest this version can read: {error}") from error

    def restored_queries(self) -> list[Query]:
        return [_restored(decode, query_pb2.Query, wire) for wire in self.queries]

    def restored_receipts(self) -> list[Receipt]:
        return [_restored(Receipt.from_bytes, release_pb2.Receipt, wire) for wire in self.receipts]

    def restored_heads(self) -> list[Head]:
        return [_restored(Head.from_bytes, guard_pb2.Head, wire) for wire in self.heads]


def query_wire(query: Query) -> Wire:
    return _wire(query_pb2.Query.FromString(encode(query)))


def receipt_wire(receipt: Receipt) -> Wire:
    return _wire(release_pb2.Receipt.FromString(receipt.to_bytes()))


def head_wire(head: Head) -> Wire:
    return _wire(head.to_proto())


def _wire(message: Message) -> Wire:
    return MessageToDict(message, preserving_proto_field_name=True)


def _restored(decoded: Callable[[bytes], Noun], kind: type[Message], wire: Wire) -> Noun:
    try:
        return decoded(ParseDict(wire, kind()).SerializeToString(deterministic=True))
    except (ParseError, SilosynthError) as error:
        raise VerificationFailed(
            f"{MANIFEST}: a {kind.DESCRIPTOR.name.lower()} in it makes no sense: {error}"
        ) from error
