"""The journal of a run: one JSON object a line, written as it happens, read by progress displays.

Only public facts, DP outputs and post-processing are ever written here.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Fact = dict[str, Any]
FORMING = "forming.png"  # beside the journal: images as they form


class Journal:
    """Appends entries to a file; safe to call from many threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()

    def write(self, kind: str, **facts: Any) -> None:
        line = json.dumps({"time": round(time.time(), 3), "kind": kind, **facts})
        with self._lock, self._path.open("a") as file:
            file.write(line + "\n")


class JournalReader:
    """Yields the entries that were added since the last look."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset = path, 0

    def new_entries(self) -> Iterator[Fact]:
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return  # still being written
                self._offset += len(line)
                if (entry := _entry(line)) is not None:
                    yield entry


def _entry(line: bytes) -> Fact | None:
    """None for what a power cut left of a line: the rest of the journal is still worth reading."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) and {"time", "kind"} <= entry.keys() else None
