"""The journal of a run: one JSON object a line, written as it happens, read by progress displays.

Only public facts, DP outputs and post-processing are ever written here.
"""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any


class Journal:
    """Appends entries to a file; safe to call from many threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()

    def write(self, kind: str, **facts: Any) -> None:
        line = json.dumps({"time": round(time.time(), 3), "kind": kind, **facts})
        with self._lock, self._path.open("a") as file:
            file.write(line + "\n")
