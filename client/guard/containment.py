"""Errors are a way out of the building too: what an unforeseen one says may quote a record."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from silosynth.common.errors import SilosynthError

_log = logging.getLogger("silosynth.guard")


@contextmanager
def contained(*allowed: type[SilosynthError]) -> Iterator[None]:
    """Let only `allowed` errors pass. Of any other, the log gets its type and place, the caller not even that."""
    try:
        yield
    except allowed:
        raise
    except Exception as error:
        places = " < ".join(f"{frame.name} ({frame.filename}:{frame.lineno})" for frame in _frames(error))
        _log.error("internal error: %s in %s", type(error).__name__, places)
        raise SilosynthError("internal error in the guard: its operator finds the place in the guard's log") from None


def _frames(error: Exception) -> list[traceback.FrameSummary]:
    """Innermost first."""
    return list(reversed(traceback.extract_tb(error.__traceback__)))
