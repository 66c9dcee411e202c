"""Files that are still there after a power cut."""

from __future__ import annotations

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Wait until a file or folder is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_durably(path: Path, content: bytes) -> None:
    """The file appears whole, or not at all."""
    scratch = path.with_name(f".{path.name}.new")
    scratch.write_bytes(content)
    sync(scratch)
    scratch.replace(path)
    sync(path.parent)
