"""Proposals that are asked once: a run that is started again must vote for the same images, or it would pay anew."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from silosynth.common.datasets.records import Labels
from silosynth.server.generators.proposals.base import Pixels, Proposals
from silosynth.server.synthesis.made_once import made_once


@dataclass(frozen=True)
class Remembered:
    proposals: Proposals
    checkpoints: Path | None

    def fresh(self, labels: Labels, seed: int) -> Pixels:
        return self._once(lambda: self.proposals.fresh(labels, seed), "fresh", labels.tolist(), seed)

    def varied(self, images: Pixels, labels: Labels, strength: float, seed: int) -> Pixels:
        asked = ("varied", torch.from_numpy(images.copy()), labels.tolist(), strength, seed)
        return self._once(lambda: self.proposals.varied(images, labels, strength, seed), *asked)

    def _once(self, made: Callable[[], Pixels], *asked: object) -> Pixels:
        found = made_once(self.checkpoints, asked, lambda: {"images": torch.from_numpy(made().copy())})
        images: Pixels = found["images"].numpy()
        return images
