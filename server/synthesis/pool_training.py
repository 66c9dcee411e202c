"""ConvNets trained on a pool of synthetic records: extractors of features, and an expert's beginnings. Free of cost."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F

from silosynth.common.augmentation import augment
from silosynth.common.networks.extractors import Network, draw_network
from silosynth.common.procedural.dice import Dice
from silosynth.common.schema import Schema
from silosynth.server.generators.base import Pool
from silosynth.server.synthesis.made_once import trained_once

_BATCH = 128
_RATE = 5e-3
_SEEDS = 1 << 62


@dataclass(frozen=True)
class PoolTraining:
    """How a network learns from a pool: so many batches of it, each through one augmentation."""

    schema: Schema
    width: int
    steps: int
    augmentation: str
    checkpoints: Path | None = None

    @property
    def views(self) -> int:
        """Of records, by one network."""
        return self.steps * _BATCH

    def network(self, pool: Pool, *seeds: int) -> Network:
        """Drawn from these seeds, and trained."""
        network = draw_network("convnet", self.schema, self.width, *seeds)
        learned_from = (pool.records, pool.labels, self.steps, self.augmentation, seeds)
        trained_once(network, self.checkpoints, learned_from, lambda: self._train(network, pool, Dice(*seeds, 1)))
        return network.eval()

    def _train(self, network: Network, pool: Pool, dice: Dice) -> None:
        optimizer = torch.optim.AdamW(network.parameters(), _RATE)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _RATE, total_steps=self.steps)
        for _ in range(self.steps):
            rows = dice.integers(len(pool.labels), _BATCH)
            seen = augment(pool.records[rows], self.augmentation, int(dice.integers(_SEEDS)))
            optimizer.zero_grad()
            F.cross_entropy(network(seen), pool.labels[rows]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
