"""Where a recipe does its long work: whom it tells how far it is, and what survives an interruption."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Sketch: TypeAlias = Callable[[], tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]]
"""Makes, when asked, some of the records as they are now: in [-1, 1] and of the schema's shape, with their labels."""


@dataclass(frozen=True)
class Workplace:
    """Silent: for experiments and tests. A run's own, which keeps a journal, is `server.desk.Desk`."""

    checkpoints: Path | None = None
    """A folder that the same run finds again when it is started again; it goes when the run is finished."""

    def report(self, share: float, loss: float, sketch: Sketch | None = None, what: str = "synthesizing") -> None:
        """How far `what` is, from 0 to 1. Report as often as you like; from one thread at a time."""
