"""Sealed releases: the noisy integers a silo lets go, and the signed receipt that says what they cost."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from google.protobuf.message import DecodeError

from silosynth.common import events
from silosynth.common.errors import QueryError, VerificationFailed
from silosynth.common.events import Charge
from silosynth.common.queries import Query, digest
from silosynth.protos.v1 import release_pb2

Integers = npt.NDArray[np.int64]

_WIDTHS = (1, 4, 8)  # bytes


@dataclass(frozen=True)
class Receipt:
    """One ledger entry as the outside sees it."""

    silo: str
    dataset: str
    query_digest: bytes
    event: Charge
    payload_digest: bytes
    sequence: int
    previous_hash: bytes
    entry_hash: bytes
    created: str
    public_key: bytes
    signature: bytes = b""

    def to_bytes(self) -> bytes:
        fields = {**self.__dict__, "event": self.event.to_proto()}
        return release_pb2.Receipt(**fields).SerializeToString(deterministic=True)

    @classmethod
    def from_bytes(cls, data: bytes) -> Receipt:
        message = _parse(release_pb2.Receipt, data)
        names = [name for name in cls.__dataclass_fields__ if name != "event"]
        try:
            event = events.from_proto(message.event)
        except QueryError as error:
            raise VerificationFailed(f"the receipt's event makes no sense: {error}") from error
        return cls(**{name: getattr(message, name) for name in names}, event=event)

    def signed_bytes(self) -> bytes:
        """What the signature covers: the receipt with an empty signature, under a domain of its own."""
        unsigned = Receipt(**{**self.__dict__, "signature": b""})
        return b"silosynth receipt v1\0" + unsigned.to_bytes()

    def verify(self) -> None:
        try:
            Ed25519PublicKey.from_public_bytes(self.public_key).verify(self.signature, self.signed_bytes())
        except (InvalidSignature, ValueError) as error:
            raise VerificationFailed(f"the receipt of {self.silo!r} is not signed by the key it names") from error


def entry_hash(
    previous: bytes, sequence: int, dataset: str, query_digest: bytes, event: bytes, payload_digest: bytes, created: str
) -> bytes:
    """Links a ledger entry to the one before it; every field is hashed on its own first, so none can bleed."""
    fields = (previous, str(sequence).encode(), dataset.encode(), query_digest, event, payload_digest, created.encode())
    return hashlib.sha256(b"".join(hashlib.sha256(field).digest() for field in fields)).digest()


def pack_payload(query_digest: bytes, grid: float, values: Integers) -> bytes:
    """The noisy integers, in as few bytes each as hold them all."""
    narrow = narrowed(values)
    width, data = narrow.itemsize, narrow.tobytes()
    message = release_pb2.Payload(query_digest=query_digest, grid=grid, bytes_per_value=width, values=data)
    return message.SerializeToString(deterministic=True)


def narrowed(values: Integers) -> npt.NDArray[Any]:
    """The same integers in the least of the widths that holds them all."""
    lowest, highest = values.min(initial=0), values.max(initial=0)
    bounds = [np.iinfo(f"<i{width}") for width in _WIDTHS]
    return values.astype(next(bound.dtype for bound in bounds if bound.min <= lowest and highest <= bound.max))


def seal(payload: bytes, receipt: Receipt) -> bytes:
    message = release_pb2.SealedRelease(payload=payload, receipt=receipt.to_bytes())
    return message.SerializeToString(deterministic=True)


def unseal(sealed: bytes) -> tuple[bytes, Receipt]:
    """The opposite of `seal`: a payload and the receipt that is signed for it."""
    envelope = _parse(release_pb2.SealedRelease, sealed)
    receipt = Receipt.from_bytes(envelope.receipt)
    receipt.verify()
    if receipt.payload_digest != hashlib.sha256(envelope.payload).digest():
        raise VerificationFailed(f"release of {receipt.silo!r}: its payload is not the one the receipt names")
    return envelope.payload, receipt


def open_release(query: Query, sealed: bytes, entered_as: bytes | None = None) -> tuple[Integers, Receipt]:
    """Verify a sealed release as the answer to `query`; its integers (in units of the grid) and its receipt.

    A query that a silo answered to itself is in the ledger as one of its outer query's `inner_identities`.
    """
    payload_bytes, receipt = unseal(sealed)
    payload = _parse(release_pb2.Payload, payload_bytes)
    plan = query.plan()
    expected_hash = entry_hash(
        receipt.previous_hash,
        receipt.sequence,
        receipt.dataset,
        receipt.query_digest,
        receipt.event.to_proto().SerializeToString(deterministic=True),
        receipt.payload_digest,
        receipt.created,
    )
    checks = {
        "it answers another query": digest(query) == payload.query_digest
        and digest(query if entered_as is None else entered_as) == receipt.query_digest,
        "it was charged as another event": events.cost(receipt.event) == plan.event,
        "its ledger entry does not hash": receipt.entry_hash == expected_hash,
        "its grid is not the agreed one": payload.grid == plan.grid,
        "it has another size": payload.bytes_per_value in _WIDTHS
        and len(payload.values) == payload.bytes_per_value * plan.layout.size,
    }
    for complaint, holds in checks.items():
        if not holds:
            raise VerificationFailed(f"release of {receipt.silo!r}: {complaint}")
    values = np.frombuffer(payload.values, f"<i{payload.bytes_per_value}").astype(np.int64)
    return values, receipt


_Message = TypeVar("_Message", release_pb2.SealedRelease, release_pb2.Receipt, release_pb2.Payload)


def _parse(kind: type[_Message], data: bytes) -> _Message:
    """Only canonical bytes: protobuf would also take fields no signature covers, and one message in many forms."""
    try:
        message = kind.FromString(data)
    except DecodeError as error:
        raise VerificationFailed(f"these bytes are not a {kind.DESCRIPTOR.name}") from error
    message.DiscardUnknownFields()
    if message.SerializeToString(deterministic=True) != data:
        raise VerificationFailed(f"this {kind.DESCRIPTOR.name} is not in canonical form")
    return message
