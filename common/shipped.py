"""The backbones that come with silosynth, by name and by digest of their files; without importing torch."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

BY_CHANNELS = {1: "procedural-grey", 3: "procedural-colour"}
"""Which one to look through at images of so many channels, unless another is named."""

WEIGHTS = Path(__file__).parent / "backbones" / "weights"


def shipped_backbones() -> dict[str, str]:
    """Digests by name."""
    return {file.stem: _digest(file) for file in sorted(WEIGHTS.glob("*.safetensors"))}


def shipped_files() -> dict[str, Path]:
    """Files by digest."""
    return {digest: WEIGHTS / f"{name}.safetensors" for name, digest in shipped_backbones().items()}


def backbone_name(digest: str) -> str:
    """What to call a backbone: by its name if it is shipped, else by its digest."""
    return next((name for name, shipped in shipped_backbones().items() if shipped == digest), digest)


@cache
def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
