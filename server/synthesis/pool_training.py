"""ConvNets trained on a pool of synthetic records: extractors of features, and an expert's beginnings. Free of cost."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from silosynth.common.augmentation import augment
from silosynth.common.networks.extractors import Network, draw_network
from silosynth.common.procedural.dice import Dice
from silosynth.common.schema import Schema
from silosynth.server.generators.base import Pool

_BATCH = 128
_RATE = 5e-3
_SEEDS = 1 << 62


def trained_network(pool: Pool, schema: Schema, width: int, steps: int, augmentation: str, *seeds: int) -> Network:
    """A network drawn from these seeds, after `steps` batches of the pool; each batch through one augmentation."""
    network, dice = draw_network("convnet", schema, width, *seeds), Dice(*seeds, 1)
    optimizer = torch.optim.AdamW(network.parameters(), _RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _RATE, total_steps=steps)
    for _ in range(steps):
        rows = dice.integers(len(pool.labels), _BATCH)
        seen = augment(pool.records[rows], augmentation, int(dice.integers(_SEEDS)))
        optimizer.zero_grad()
        F.cross_entropy(network(seen), pool.labels[rows]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    return network.eval()
