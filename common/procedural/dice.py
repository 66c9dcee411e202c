"""Public randomness for public images: seeded, so that anyone can draw the same ones. Never for privacy noise."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


class Dice:
    """Draws on the CPU whatever the device, so that a seed means the same images everywhere."""

    def __init__(self, *seeds: int, device: torch.device | str = "cpu") -> None:
        """Several seeds, such as a stream's and a batch's number, stand for one."""
        (mixed,) = np.random.SeedSequence(seeds).generate_state(1, np.uint64)
        self._generator = torch.Generator().manual_seed(int(mixed))
        self.device = torch.device(device)

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
        drawn = torch.rand(shape, generator=self._generator) * (high - low) + low
        return drawn.to(self.device)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self._generator).to(self.device)

    def integers(self, bound: int, *shape: int) -> Tensor:
        return torch.randint(bound, shape, generator=self._generator).to(self.device)

    def chance(self, probability: float, *shape: int) -> Tensor:
        """True with this probability."""
        return self.uniform(*shape) < probability
