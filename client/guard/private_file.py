"""Files only the guard's user may read, written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path


def create_private_file(path: Path, content: bytes | Iterable[bytes]) -> None:
    """Durably create `path`, readable by its owner alone; FileExistsError if something is there already.

    A crash leaves either no file or the whole file, so a short file is always damage, never an unfinished start.
    Content that comes in chunks and raises instead of ending leaves no file either.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.") as scratch:  # created with mode 0600
        scratch.writelines([content] if isinstance(content, bytes) else content)
        scratch.flush()
        os.fsync(scratch.fileno())
        os.link(scratch.name, path)
    _sync_folder(path.parent)


def replace_private_file(path: Path, content: bytes) -> None:
    """Durably put `content` in the place of whatever `path` holds; a crash leaves the old file or the new one."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as scratch:
        try:
            scratch.write(content)
            scratch.flush()
            os.fsync(scratch.fileno())
            os.replace(scratch.name, path)  # noqa: PTH105 (names, not paths)
        except BaseException:
            Path(scratch.name).unlink(missing_ok=True)
            raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
