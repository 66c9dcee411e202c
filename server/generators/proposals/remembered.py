"""Proposals that are asked once: a run that is started again must vote for the same images, or it would pay anew."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from silosynth.common.datasets.records import Labels
from silosynth.server.generators.proposals.base import Pixels, Proposals


@dataclass(frozen=True)
class Remembered:
    proposals: Proposals
    folder: Path

    def fresh(self, labels: Labels, seed: int) -> Pixels:
        return self._once(lambda: self.proposals.fresh(labels, seed), labels.tobytes(), str(seed).encode())

    def varied(self, images: Pixels, labels: Labels, strength: float, seed: int) -> Pixels:
        asked = (images.tobytes(), labels.tobytes(), repr((strength, seed)).encode())
        return self._once(lambda: self.proposals.varied(images, labels, strength, seed), *asked)

    def _once(self, made: Callable[[], Pixels], *asked: bytes) -> Pixels:
        file = self.folder / f"{hashlib.sha256(b'|'.join(asked)).hexdigest()}.npy"
        if not file.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            unfinished = file.with_suffix(".unfinished.npy")
            np.save(unfinished, made())
            unfinished.rename(file)
        return np.asarray(np.load(file), dtype=np.uint8)
