"""What synthetic images are drawn towards."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self

import torch
from torch import Tensor


class Target(ABC):
    """A loss of batches of images. It may remember earlier batches, such as a running mean of their statistics."""

    @abstractmethod
    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """A scalar, differentiable in the images: (batch, channels, height, width), about [-1, 1], augmented."""

    @abstractmethod
    def on(self, device: torch.device, autocast: bool) -> Self:
        """A copy there with an empty memory: workers share nothing that one of them changes.

        Autocast allows bfloat16 inside networks (see `working_copy`).
        """

    @property
    @abstractmethod
    def identity(self) -> str:
        """Tells it from every target that asks for something else, so that no job goes on from another's checkpoint."""

    def memory(self) -> dict[str, Tensor]:
        """All tensors that `loss` changes, by name without dots: changed in place, and restored in place."""
        return {}
