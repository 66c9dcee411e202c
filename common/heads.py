"""Heads: the signed newest entry of a ledger. Whoever keeps one can tell when the ledger gives way to an older copy."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from google.protobuf.message import DecodeError

from silosynth.common.errors import VerificationFailed
from silosynth.protos.v1 import guard_pb2


@dataclass(frozen=True)
class Head:
    """Sequence 0 and an empty hash stand for a ledger without entries."""

    silo: str
    sequence: int
    hash: bytes
    public_key: bytes
    signature: bytes = b""

    def to_proto(self) -> guard_pb2.Head:
        return guard_pb2.Head(**self.__dict__)

    @classmethod
    def from_proto(cls, message: guard_pb2.Head) -> Head:
        return cls(**{name: getattr(message, name) for name in cls.__dataclass_fields__})

    def to_bytes(self) -> bytes:
        return self.to_proto().SerializeToString(deterministic=True)

    @classmethod
    def from_bytes(cls, data: bytes) -> Head:
        try:
            return cls.from_proto(guard_pb2.Head.FromString(data))
        except DecodeError as error:
            raise VerificationFailed("these bytes are not the head of a ledger") from error

    def signed_bytes(self) -> bytes:
        """What the signature covers: the head with an empty signature, under a domain of its own."""
        return b"silosynth head v1\0" + replace(self, signature=b"").to_bytes()

    def verify(self) -> None:
        if self.sequence >= 1 << 63:
            raise VerificationFailed(f"the head of {self.silo!r} counts more entries than any ledger holds")
        try:
            Ed25519PublicKey.from_public_bytes(self.public_key).verify(self.signature, self.signed_bytes())
        except (InvalidSignature, ValueError) as error:
            raise VerificationFailed(f"the head of {self.silo!r} is not signed by the key it names") from error
