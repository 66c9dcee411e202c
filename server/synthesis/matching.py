"""Feature matching: how far synthetic records are from what the silos released of theirs, with gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from silosynth.common.signals import Signal, Signals

_DRAWN_IN_THE_PAPERS = 50  # L: losses have the size of theirs
_CACHED_NUMBERS = 1 << 28  # half a gigabyte to one


class Matcher:
    """Signals are kept once made, as far as memory goes: bases take a hundred times longer to make than to use.

    `number_type` is that of the networks' arithmetic. The silos' features are exact, but their noise is a hundred
    times what rounding to 8 bits does to a sum, and gradients through rounded networks serve as well.
    """

    def __init__(
        self, signals: Signals, clip: float, sizes: Sequence[int], number_type: torch.dtype = torch.float32
    ) -> None:
        """`sizes` tells how many synthetic records each class has."""
        self._signals, self._clip, self._sizes, self._number_type = signals, clip, list(sizes), number_type
        self._made: dict[int, Signal] = {}
        self._cached_numbers = 0

    def loss(self, inputs: Tensor, index: int, sums: Tensor, drawn: Tensor) -> Tensor:
        """Sum over classes c of |S_c - n_c * mean of the clipped features of synthetic records of class c|^2, scaled.

        `inputs` are sorted by class; `sums` (S) are the silos' for signal `index`, `drawn` (n)
        how many records of each class they are expected to be taken over. Scaled as if those were the papers' number;
        a class with fewer records than others, hence more noise, counts less.
        """
        features = self._signal(index).features(inputs)
        lengths = features.detach().norm(dim=1, keepdim=True)
        clipped = features * (self._clip / lengths.clamp_min(self._clip))
        means = torch.stack([members.mean(dim=0) for members in clipped.split(self._sizes)])
        distance: Tensor = (sums - drawn[:, None] * means).square().sum()
        return distance * (_DRAWN_IN_THE_PAPERS**2 / drawn.square().mean())

    def _signal(self, index: int) -> Signal:
        if index in self._made:
            return self._made[index]
        exact = self._signals[index]
        signal = replace(exact, network=exact.network.to(self._number_type))
        if self._cached_numbers < _CACHED_NUMBERS:
            self._made[index] = signal
            self._cached_numbers += signal.size()
        return signal
