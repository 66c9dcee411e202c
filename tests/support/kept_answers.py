"""A federation in one process whose answers are kept in a folder: long measurements go on where they were stopped."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from support.entropies import SeededEntropy

from silosynth.common.datasets import Records
from silosynth.common.queries.base import digest
from silosynth.deploy.inprocess import InProcess
from silosynth.server.recipes import recipe_named
from silosynth.server.recipes.base import Ask, Product, Summed, Task, drive


@dataclass
class Silos:
    """Gives the same answer to the same question, as guards do."""

    shards: list[Records]
    folder: Path
    seed: int
    cpu_seconds: float = 0.0  # of all answers
    spent_now: float = 0.0  # of those that were not known

    def ask(self, ask: Ask) -> Summed:
        query = ask.query
        asked = hashlib.sha256(digest(query) + f"{len(self.shards)} {self.seed}".encode()).hexdigest()
        file = self.folder / f"{asked[:32]}.npz"
        if not file.exists():
            self._answer(ask, file)
        kept = dict(np.load(file))
        self.cpu_seconds += float(kept.pop("cpu_seconds"))
        blocks = {name: block.astype(np.float64) for name, block in kept.items()}
        return Summed(blocks, len(self.shards), query.plan())

    def _answer(self, ask: Ask, file: Path) -> None:
        begun = time.process_time()
        summed = InProcess(self.shards, SeededEntropy(self.seed)).ask(ask)
        spent = time.process_time() - begun
        unfinished = file.with_suffix(".unfinished.npz")
        blocks = {name: block.astype(np.float32) for name, block in summed.blocks.items()}
        np.savez(unfinished, cpu_seconds=spent, **blocks)
        unfinished.rename(file)
        self.spent_now += time.process_time() - begun


def made_by(name: str, chosen: dict[str, Any], task: Task, silos: Silos) -> tuple[Product, dict[str, int]]:
    """What a recipe makes, and the CPU seconds of silos and server."""
    recipe, begun = recipe_named(name), time.process_time()
    silos.folder.mkdir(parents=True, exist_ok=True)
    product = drive(recipe.steps(task, recipe.parameters(**chosen)), silos.ask)
    synthesis = time.process_time() - begun - silos.spent_now
    return product, {"sampling": round(silos.cpu_seconds), "synthesis": round(synthesis)}
