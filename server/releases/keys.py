"""The key that signs a server's releases: publisher.key in its folder."""

from __future__ import annotations

import os
from pathlib import Path

from cryptography.exceptions import InternalError, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from silosynth.common.errors import ConfigError

KEY_FILE = "publisher.key"


def create_key(folder: Path) -> str:
    """Make the key that signs a server's releases; returns its public half, in hexadecimal."""
    key = Ed25519PrivateKey.generate()
    descriptor = os.open(folder / KEY_FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return public_half(key)


def load_key(folder: Path) -> Ed25519PrivateKey:
    path = folder / KEY_FILE
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm, InternalError) as error:
        raise ConfigError(f"{path}: the key that signs releases cannot be read: restore it from a backup") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigError(f"{path}: not an Ed25519 key: restore it from a backup")
    return key


def public_half(key: Ed25519PrivateKey) -> str:
    return key.public_key().public_bytes_raw().hex()
