"""manifest.json.sig: the publisher's Ed25519 signature over the digest of manifest.json, which names every file."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from silosynth.common.errors import VerificationFailed

MANIFEST = "manifest.json"
SIGNATURE = "manifest.json.sig"
_DOMAIN = b"silosynth release v1\0"


@dataclass(frozen=True)
class Signature:
    """All in hexadecimal. The digest of its manifest is a release's identity."""

    manifest_sha256: str
    public_key: str
    signature: str

    @classmethod
    def of(cls, manifest: bytes, key: Ed25519PrivateKey) -> Signature:
        digest = hashlib.sha256(manifest).digest()
        signature = key.sign(_DOMAIN + digest)
        return cls(digest.hex(), key.public_key().public_bytes_raw().hex(), signature.hex())

    def to_bytes(self) -> bytes:
        return (json.dumps(asdict(self), indent=2) + "\n").encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Signature:
        """Only the canonical bytes: otherwise a changed letter could mean the same signature."""
        try:
            signature = cls(**json.loads(data))
        except (ValueError, TypeError) as error:
            raise VerificationFailed(f"{SIGNATURE} was changed: it is not a signature") from error
        small = all(isinstance(value, str) and re.fullmatch("[0-9a-f]+", value) for value in vars(signature).values())
        if not small or signature.to_bytes() != data:
            raise VerificationFailed(f"{SIGNATURE} was changed: it is not as a publisher writes it")
        return signature

    def verify(self, manifest: bytes, publisher: str | None = None) -> None:
        """`publisher`: the public key that must have signed; without it, any key that the signature names."""
        try:
            key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(self.public_key))
            key.verify(bytes.fromhex(self.signature), _DOMAIN + bytes.fromhex(self.manifest_sha256))
        except (InvalidSignature, ValueError, TypeError) as error:
            raise VerificationFailed(f"{SIGNATURE} was changed: it is not signed by the key it names") from error
        if hashlib.sha256(manifest).hexdigest() != self.manifest_sha256:
            raise VerificationFailed(f"{MANIFEST} was changed: it is not the one that was signed")
        if publisher is not None and self.public_key != publisher:
            raise VerificationFailed(
                f"signed by {self.public_key}, not by the publisher {publisher}: whoever made this is not who you trust"
            )
