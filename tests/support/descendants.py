"""Finding every process a test has started, however far removed, by a mark in its environment."""

from __future__ import annotations

import contextlib
import os
import uuid
from pathlib import Path

VARIABLE = "SILOSYNTH_TEST"


def marked_environment() -> tuple[str, dict[str, str]]:
    mark = uuid.uuid4().hex
    return mark, {**os.environ, VARIABLE: mark}


def descendants(mark: str, program: str = "", **environment: str) -> list[int]:
    """Processes with the test's mark whose command line holds `program` and whose environment holds the rest."""
    needles = [f"{name}={value}".encode() for name, value in {VARIABLE: mark, **environment}.items()]
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            variables = (folder / "environ").read_bytes().split(b"\0")
            command = (folder / "cmdline").read_bytes()
            if all(needle in variables for needle in needles) and program.encode() in command:
                found.append(int(folder.name))
    return found
