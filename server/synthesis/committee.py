"""A classifier whose opinion is the mean of its members': of the form that the mean of several teachers has.

A student of another form agrees with the teachers on the inputs they were asked about, and errs elsewhere. One of their
form that agrees on enough inputs agrees everywhere.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor, nn

from silosynth.common.procedural.dice import Dice
from silosynth.common.schema import Schema
from silosynth.common.teaching.views import draw_classifier

_UNLIKE = 0.01  # members that begin alike would stay alike


class Committee(nn.Module):
    """Linear classifiers side by side; of other networks, several last layers on one body."""

    def __init__(self, network: str, members: int, schema: Schema, features: int, seed: int) -> None:
        super().__init__()
        self._members = members
        self.network = draw_classifier(network, replace(schema, classes=members * schema.classes), features, seed)
        last, dice = (
            [layer for layer in self.network.modules() if isinstance(layer, nn.Linear)][-1],
            Dice(seed, members),
        )
        with torch.no_grad():
            last.weight += _UNLIKE * dice.normal(*last.weight.shape)

    def forward(self, seen: Tensor) -> Tensor:
        """Logarithms of the mean probabilities, which are logits of them."""
        logits = cast(Tensor, self.network(seen)).reshape(len(seen), self._members, -1)
        return logits.log_softmax(2).logsumexp(1) - math.log(self._members)
