"""Entropy for tests: predictable, so never for noise that leaves a silo."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


class SeededEntropy:
    """A stream of words that depends on the seed alone, not on how it is cut into calls."""

    def __init__(self, seed: int = 0) -> None:
        self._generator = np.random.Generator(np.random.PCG64(seed))

    def words(self, count: int) -> npt.NDArray[np.uint64]:
        return self._generator.integers(0, 1 << 64, count, dtype=np.uint64)


class ScriptedEntropy:
    """Gives exactly these words, in order."""

    def __init__(self, *words: int) -> None:
        self.left = list(words)

    def words(self, count: int) -> npt.NDArray[np.uint64]:
        given, self.left = self.left[:count], self.left[count:]
        assert len(given) == count, "the script ran out of words"
        return np.array(given, dtype=np.uint64)
