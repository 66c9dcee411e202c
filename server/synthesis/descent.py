"""Gradient descent on records, with an exponential average of them over the steps.

The papers take steps of SGD at rate 1 from noise as strong as images. Normalization layers make that slow: the larger
an image, the smaller its gradient, so the noise it starts from is never quite forgotten. Adam from faint noise gets
further in a tenth of the steps (digits at epsilon 8 after 400: accuracy 92 % in place of 84 %).
"""

from __future__ import annotations

import torch
from torch import Tensor

_BETAS = (0.9, 0.99)


class Descent:
    def __init__(self, start: Tensor, learning_rate: float, averaging: float = 0.0) -> None:
        """`averaging` is the weight of the past in the average, which forgets the start; 0 keeps the latest records."""
        self.records = start.clone().requires_grad_()
        self.average = start.clone()
        self._optimizer = torch.optim.Adam([self.records], learning_rate, _BETAS)
        self._averaging, self._steps = averaging, 0

    def step(self, loss: Tensor) -> None:
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        self._steps += 1
        weight = (1 - self._averaging) / (1 - self._averaging**self._steps)
        self.average.lerp_(self.records.detach(), weight)
