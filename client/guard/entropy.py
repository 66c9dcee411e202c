"""Secret randomness: from the operating system, never from a generator a program could seed."""

from __future__ import annotations

import os
from typing import Protocol

import numpy as np
import numpy.typing as npt


class Entropy(Protocol):
    def words(self, count: int) -> npt.NDArray[np.uint64]:
        """`count` independent uniform 64-bit integers."""
        ...


class SystemEntropy:
    """The only source of privacy noise and sampling coins outside tests."""

    def words(self, count: int) -> npt.NDArray[np.uint64]:
        return np.frombuffer(os.urandom(8 * count), dtype="<u8")


def coin_flips(entropy: Entropy, count: int, probability: float) -> npt.NDArray[np.bool_]:
    """Independent coins, true with `probability` cut to 64 binary places, so never more often than accounted."""
    if probability >= 1:
        return np.ones(count, dtype=np.bool_)
    return entropy.words(count) < np.uint64(int(probability * 2.0**64))
