"""Feature matching: how far synthetic records are from what the silos released of theirs, with gradients."""

from __future__ import annotations

import torch
from torch import Tensor

from silosynth.common.signals import Signal, Signals

_DRAWN_IN_THE_PAPERS = 50  # L, for which their learning rate was chosen
_CACHED_NUMBERS = 1 << 28  # a gigabyte


class Matcher:
    """Signals are kept once made, as far as memory goes: bases take a hundred times longer to make than to use."""

    def __init__(self, signals: Signals, clip: float, classes: int) -> None:
        self._signals, self._clip, self._classes = signals, clip, classes
        self._made: dict[int, Signal] = {}
        self._cached_numbers = 0

    def loss(self, inputs: Tensor, index: int, sums: Tensor, drawn: Tensor) -> Tensor:
        """Sum over classes c of |S_c - n_c * mean of the clipped features of synthetic records of class c|^2, scaled.

        `inputs` are sorted by class, equally many of each; `sums` (S) are the silos' for signal `index`, `drawn` (n)
        how many records of each class they are expected to be taken over. Scaled as if those were the papers' number,
        so that one learning rate serves all; a class with fewer records than others, hence more noise, moves less.
        """
        features = self._signal(index).features(inputs)
        lengths = features.detach().norm(dim=1, keepdim=True)
        clipped = features * (self._clip / lengths.clamp_min(self._clip))
        means = clipped.unflatten(0, (self._classes, -1)).mean(dim=1)
        distance: Tensor = (sums - drawn[:, None] * means).square().sum()
        return distance * (_DRAWN_IN_THE_PAPERS**2 / drawn.square().mean())

    def _signal(self, index: int) -> Signal:
        if index in self._made:
            return self._made[index]
        signal = self._signals[index]
        if self._cached_numbers < _CACHED_NUMBERS:
            self._made[index] = signal
            self._cached_numbers += signal.size()
        return signal


def descend(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
