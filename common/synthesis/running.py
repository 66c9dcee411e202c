"""Running means of the moments of batch after batch: those of one batch are too rough to be matched."""

from __future__ import annotations

import torch
from torch import Tensor

from silosynth.common.synthesis.gaussian import Gaussians


class RunningMoments:
    """Of groups (the first axis: layers, or classes), as many as the targets have; changed in place."""

    def __init__(self, like: Gaussians, decay: float) -> None:
        self.first, self.second = torch.zeros_like(like.mean), torch.zeros_like(like.covariance)
        self.batches = torch.zeros(len(like.mean), device=like.mean.device)
        self._decay = decay

    def updated(self, first: Tensor, second: Tensor, present: Tensor) -> tuple[Tensor, Tensor]:
        """The running means with this batch; their gradients are those of the batch as if it stood alone.

        Groups that the batch has no image of stay as they are.
        """
        share = torch.where(self.batches > 0, 1 - self._decay, 1.0) * present
        with torch.no_grad():
            for running, new in ((self.first, first), (self.second, second)):
                running.lerp_(new, share.reshape(-1, *(1 for _ in new.shape[1:])))
            self.batches += present
        return self.first + first - first.detach(), self.second + second - second.detach()

    def memory(self, name: str) -> dict[str, Tensor]:
        return {f"{name}_first": self.first, f"{name}_second": self.second, f"{name}_batches": self.batches}
