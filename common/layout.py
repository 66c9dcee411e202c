"""How named blocks of statistics lie in one flat vector, the same on both sides of the wire."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Layout:
    """Named blocks, in order. `split` and `join` are inverse to each other."""

    blocks: tuple[tuple[str, Shape], ...]

    @classmethod
    def of(cls, **blocks: Shape) -> Layout:
        return cls(tuple(blocks.items()))

    @property
    def size(self) -> int:
        return sum(math.prod(shape) for _, shape in self.blocks)

    def split(self, flat: npt.NDArray[np.float64]) -> dict[str, npt.NDArray[np.float64]]:
        """Views of `flat`, by name."""
        if flat.shape != (self.size,):
            raise ValueError(f"expected a vector of {self.size} values, got shape {flat.shape}")
        edges = np.cumsum([0, *(math.prod(shape) for _, shape in self.blocks)])
        return {
            name: flat[start:stop].reshape(shape)
            for (name, shape), (start, stop) in zip(self.blocks, pairwise(edges), strict=True)
        }

    def join(self, parts: dict[str, npt.NDArray[np.float64]]) -> npt.NDArray[np.float64]:
        return np.concatenate([parts[name].reshape(-1) for name, _ in self.blocks])
