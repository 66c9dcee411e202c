"""Small pictures of three kinds, and a small random network to look at them."""

from __future__ import annotations

import numpy as np

from silosynth.common.backbones import Backbone, backbone
from silosynth.common.datasets import Records
from silosynth.common.schema import Schema

TOY = Schema((8, 8, 1), 3)


def toy_backbone(seed: int = 0) -> Backbone:
    return backbone("residual-16", 1, seed=seed)


def toy_records(sizes: tuple[int, ...] = (40, 40, 40), seed: int = 0) -> Records:
    """Bars across, bars down and blobs, each shifted at random and with some noise."""
    generator = np.random.default_rng(seed)
    labels = np.repeat(np.arange(3), sizes)
    shifts = generator.uniform(0, 2 * np.pi, (2, len(labels), 1, 1))
    across, down = (np.sin(grid * 2 * np.pi / 4 + shift) for grid, shift in zip(np.mgrid[:8, :8], shifts, strict=True))
    kinds = np.stack([across, down, across * down])
    pixels = 0.8 * kinds[labels, np.arange(len(labels))] + generator.normal(0, 0.1, (len(labels), 8, 8))
    return Records(np.clip(pixels, -1, 1).astype(np.float32)[..., None], labels, TOY)
