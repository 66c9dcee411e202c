"""Which code made a release: a version number says what was meant, a digest of the source files what was run."""

from __future__ import annotations

import hashlib
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

from silosynth.common.publication.files import sha256_of
from silosynth.common.publication.manifest import Code

_ROOMS = ("common", "protos", "server")  # what runs on the server; silos run their own code, as their receipts say


def code_version() -> Code:
    total = hashlib.sha256()
    for room in _ROOMS:
        (folder,) = import_module(f"silosynth.{room}").__path__
        for path in sorted(Path(folder).rglob("*.py")):
            total.update(f"{room}/{path.relative_to(folder).as_posix()} {sha256_of(path)}\n".encode())
    return Code(silosynth=version("silosynth"), source_sha256=total.hexdigest())
