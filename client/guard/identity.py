"""The silo's signing key: receipts, heads and decisions bear its signature."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from cryptography.exceptions import InternalError, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from silosynth.client.guard.private_file import create_private_file
from silosynth.common.errors import ConfigError
from silosynth.common.heads import Head
from silosynth.common.releases import Receipt

Document = TypeVar("Document", Receipt, Head)


@dataclass(frozen=True)
class Identity:
    key: Ed25519PrivateKey

    @property
    def public_key(self) -> bytes:
        return self.key.public_key().public_bytes_raw()

    def sign(self, document: Document) -> Document:
        return replace(document, signature=self.key.sign(document.signed_bytes()))


def load_or_create(path: Path) -> Identity:
    """The key at `path`, created on first start."""
    try:
        if not path.exists():
            key = Ed25519PrivateKey.generate()
            create_private_file(path, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return _load(path)
    except OSError as error:
        raise ConfigError(f"{path}: the guard's key cannot be read or created: {error.strerror}") from error


def load_existing(path: Path) -> Identity:
    """For commands that look after a guard: only the guard itself makes keys."""
    if not path.exists():
        raise ConfigError(f"{path}: no key yet: it is created when the guard is started for the first time")
    return load_or_create(path)


def _load(path: Path) -> Identity:
    if path.stat().st_mode & 0o077:
        raise ConfigError(f"{path}: others may read the guard's key: run chmod 600 {path}")
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm, InternalError) as error:
        raise ConfigError(f"{path}: not an unencrypted private key in PEM form: restore it from a backup") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigError(f"{path}: not an Ed25519 key: restore the guard's key from a backup")
    return Identity(key)
