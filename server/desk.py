"""A run's workplace: progress goes to its journal in coarse steps, images as they form into its folder.

All of it is post-processing of what silos released.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from pathlib import Path

from silosynth.common.datasets.records import to_bytes_range
from silosynth.server.journal import FORMING, Journal
from silosynth.server.recipes.workplace import Sketch, Workplace
from silosynth.server.releases.contact_sheet import contact_sheet

_STEPS = 100  # entries of one piece of work, at most
_SECONDS_BETWEEN_PICTURES = 5.0


@dataclass
class _Told:
    what: str = ""
    step: int = -1
    pictured: float = -math.inf


@dataclass(frozen=True)
class Desk(Workplace):
    """`classes` are the names under which pictures show them; none for records that are no pictures."""

    folder: Path = field(kw_only=True)  # the run's
    journal: Journal = field(kw_only=True)
    classes: tuple[str, ...] = field(kw_only=True)
    _told: _Told = field(default_factory=_Told, init=False)

    def report(self, share: float, loss: float, sketch: Sketch | None = None, what: str = "synthesizing") -> None:
        step = math.floor(_STEPS * share)
        if (what, step) == (self._told.what, self._told.step):
            return
        self._told.what, self._told.step = what, step
        picture = {"picture": FORMING} if sketch is not None and self._drawn(sketch, last=step == _STEPS) else {}
        known = round(loss, 6) if math.isfinite(loss) else None  # JSON has no infinity
        self.journal.write("working", what=what, share=step / _STEPS, loss=known, **picture)

    def _drawn(self, sketch: Sketch, last: bool) -> bool:
        """A picture costs more than an entry, so there are fewer; what it replaces stays whole until then."""
        now = time.monotonic()
        if not self.classes or (now - self._told.pictured < _SECONDS_BETWEEN_PICTURES and not last):
            return False
        self._told.pictured = now
        images, labels = sketch()
        unfinished = self.folder / f".{FORMING}"
        contact_sheet(to_bytes_range(images), labels, self.classes).save(unfinished, "PNG")
        unfinished.replace(self.folder / FORMING)
        return True
