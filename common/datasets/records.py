"""Records in memory: what a silo's shard or a public test set is, once loaded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from silosynth.common.errors import DataError
from silosynth.common.schema import Schema

Features = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Records:
    """Features and labels. Images stay uint8 in memory; batches come as float32 in [-1, 1]."""

    features: npt.NDArray[np.uint8] | Features
    labels: Labels
    schema: Schema

    def __post_init__(self) -> None:
        if self.features.shape != (len(self.labels), *self.schema.shape):
            raise DataError(f"records have shape {self.features.shape[1:]}, expected {self.schema.shape}")
        if self.features.dtype not in (np.uint8, np.float32):
            raise DataError(f"features are {self.features.dtype}, expected uint8 or float32")
        if self.features.dtype == np.float32 and not np.isfinite(self.features).all():
            raise DataError("some records hold NaN or infinite values: clean or drop them before loading")
        if self.labels.size and not (self.labels.min() >= 0 and self.labels.max() < self.schema.classes):
            raise DataError(f"some labels are outside 0..{self.schema.classes - 1}: check the declared classes")

    def __len__(self) -> int:
        return len(self.labels)

    def batches(self, size: int = 4096) -> Iterator[tuple[Features, Labels]]:
        """Flat float32 features in [-1, 1] with labels, in order, in bounded memory."""
        for start in range(0, len(self), size):
            part = self.features[start : start + size].reshape(-1, self.schema.dimension)
            yield to_unit_range(part), self.labels[start : start + size]

    def flat(self) -> Features:
        """All at once, as `batches` gives them: for few records."""
        return to_unit_range(self.features.reshape(-1, self.schema.dimension))

    def take(self, indices: npt.NDArray[np.int64]) -> Records:
        return Records(self.features[indices], self.labels[indices], self.schema)


def to_unit_range(features: npt.NDArray[np.uint8] | Features) -> Features:
    """[0, 255] to [-1, 1]; float features are cut to [-1, 1]."""
    if features.dtype == np.uint8:
        return features.astype(np.float32) / np.float32(127.5) - np.float32(1)
    return np.clip(features, np.float32(-1), np.float32(1)).astype(np.float32)


def to_bytes_range(features: npt.NDArray[np.floating]) -> npt.NDArray[np.uint8]:
    """[-1, 1] to [0, 255], out-of-range values cut."""
    scaled: npt.NDArray[np.floating] = np.rint((features + 1) * 127.5)
    return np.asarray(np.clip(scaled, 0, 255), dtype=np.uint8)
