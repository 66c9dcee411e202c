"""Records as tensors where models are trained: put there once, not batch by batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from silosynth.common.datasets.records import Records, to_unit_range

SoftLabels = npt.NDArray[np.float32]


class Examples:
    """Images as (count, channels, height, width), in bytes until a batch is asked for: a quarter of the memory."""

    def __init__(self, records: Records, soft_labels: SoftLabels | None, device: torch.device) -> None:
        features = records.features if records.features.dtype == np.uint8 else to_unit_range(records.features)
        stored = _tensor(features).to(device)
        self._stored = stored.permute(0, 3, 1, 2).contiguous() if records.schema.is_image else stored
        self.targets = _tensor(records.labels if soft_labels is None else soft_labels).to(device)

    def __len__(self) -> int:
        return len(self._stored)

    def inputs(self, rows: Tensor | slice) -> Tensor:
        """Float32 in [-1, 1]."""
        chosen = self._stored[rows]
        return chosen.float().div_(127.5).sub_(1) if chosen.dtype == torch.uint8 else chosen

    def in_order(self, size: int) -> Iterator[Tensor]:
        for start in range(0, len(self), size):
            yield self.inputs(slice(start, start + size))


def _tensor(array: npt.NDArray[Any]) -> Tensor:
    """Shared with the array, unless that is read-only, as arrays out of files may be: torch knows no such tensors."""
    return torch.from_numpy(np.require(array, requirements="W"))
