"""Sums that a run's later questions followed from: started again, with other silos present, it goes by them.

A recipe that asks about what it has learned would else ask otherwise than before, and every silo would pay again. The
last sum is not among them: nothing follows from it yet, so a silo that comes late may still join it.
"""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from silosynth.common.backbones.storage import write_whole
from silosynth.common.errors import SilosynthError
from silosynth.common.queries import Query, digest
from silosynth.common.releases import Receipt
from silosynth.server.recipes.base import Summed

_RECEIPT = "receipt-"


@dataclass(frozen=True)
class KeptSum:
    summed: Summed
    receipts: list[Receipt]


class KeptSums:
    """Of one run, in a folder that goes when the run is finished; nothing is kept without one."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._last: tuple[Path, Path] | None = None

    def find(self, query: Query) -> KeptSum | None:
        """What was damaged meanwhile is as good as none."""
        if self._folder is None or not self._file(query).exists():
            return None
        try:
            return _decoded(query, self._file(query).read_bytes())
        except (SilosynthError, ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile):
            return None

    def keep(self, query: Query, found: KeptSum) -> None:
        """As the last, until a question follows."""
        if self._folder is not None and query.added_up:
            self._last = self._folder / "last", self._file(query)
            write_whole(self._last[0], _encoded(found))

    def a_question_follows(self) -> None:
        if self._last is not None:
            written, file = self._last
            written.replace(file)
            self._last = None

    def _file(self, query: Query) -> Path:
        assert self._folder is not None
        return self._folder / f"{digest(query).hex()}.npz"


def _encoded(kept: KeptSum) -> bytes:
    content = io.BytesIO()
    receipts = {
        f"{_RECEIPT}{number}": np.frombuffer(receipt.to_bytes(), np.uint8)
        for number, receipt in enumerate(kept.receipts)
    }
    values = kept.summed.plan.layout.join(kept.summed.blocks)
    np.savez(content, allow_pickle=False, values=values, silos=kept.summed.silos, **receipts)
    return content.getvalue()


def _decoded(query: Query, content: bytes) -> KeptSum:
    plan = query.plan()
    with np.load(io.BytesIO(content), allow_pickle=False) as stored:
        receipts = [Receipt.from_bytes(stored[name].tobytes()) for name in stored.files if name.startswith(_RECEIPT)]
        return KeptSum(Summed(plan.layout.split(stored["values"]), int(stored["silos"]), plan), receipts)
