"""The files of a release folder: digest and size of each, under names that stay within the folder."""

from __future__ import annotations

import hashlib
from pathlib import Path, PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, Field

from silosynth.common.config import Section
from silosynth.common.errors import VerificationFailed
from silosynth.common.publication.signature import MANIFEST, SIGNATURE

_LONGEST_NAME = 1024


def _stays_inside(name: str) -> str:
    """A manifest is somebody else's word: what it names must not lie outside the folder or hide in it."""
    path = PurePosixPath(name)
    usual = len(name) <= _LONGEST_NAME and name.isprintable() and "\\" not in name and path.as_posix() == name
    if not usual or path.is_absolute() or any(part.startswith(".") for part in path.parts):
        raise ValueError(f"{name!r} cannot name a file of a release")
    if name in (MANIFEST, SIGNATURE):
        raise ValueError(f"{name} cannot list itself")
    return name


FileName = Annotated[str, Field(min_length=1), AfterValidator(_stays_inside)]


class FileFacts(Section):
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    bytes: Annotated[int, Field(ge=0, lt=1 << 50)]


def measure(folder: Path) -> dict[str, FileFacts]:
    """Every file but manifest and signature; a link could change what it points to, so there may be none."""
    paths = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*")}
    if links := [name for name, path in paths.items() if path.is_symlink()]:
        raise VerificationFailed(f"{folder}: {links[0]} is a symbolic link")
    return {
        name: FileFacts(sha256=sha256_of(path), bytes=path.stat().st_size)
        for name, path in sorted(paths.items())
        if path.is_file() and name not in (MANIFEST, SIGNATURE)
    }


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
