"""The generator of data-free distillation: from latents to records in [-1, 1], taught by the student alone.

Its loss rewards inputs the student is sure of (one-hot), batches in which all classes are as frequent (information
entropy, of the batch's mean prediction), and features that are strong (activation, with a minus): the paper's Eq. (8)
has the entropy of each input by itself, and a plus.
"""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor

from silosynth.common.procedural.dice import Dice
from silosynth.common.schema import Schema
from silosynth.server.synthesis.generator_networks import deep_network
from silosynth.server.synthesis.pupil import Pupil

LATENT = 64

_LEARNING_RATE, _LATENT_RATE = 2e-3, 0.015
_ONE_HOT, _ENTROPY, _ACTIVATION = 1.0, 5.0, 0.1  # usual weights in data-free distillation


class Generator:
    """With `count` latents that learn along with it."""

    def __init__(self, schema: Schema, count: int, seed: int) -> None:
        self.schema = schema
        self.network = deep_network(schema, LATENT, seed)
        self.latents = Dice(seed, 1).normal(count, LATENT).requires_grad_()
        groups = [
            {"params": list(self.network.parameters()), "lr": _LEARNING_RATE},
            {"params": [self.latents], "lr": _LATENT_RATE},
        ]
        self._optimizer = torch.optim.Adam(groups)

    def __call__(self, latents: Tensor) -> Tensor:
        """Records as networks take them."""
        return cast(Tensor, self.network(latents))

    @torch.no_grad()
    def sample(self, latents: Tensor) -> Tensor:
        self.network.eval()
        made = torch.cat([self(part) for part in torch.split(latents, 256)])
        self.network.train()
        return made

    def learn(self, student: Pupil, targets: Tensor, steps: int) -> float:
        """From the student: `targets` are what teachers said about the records of these latents."""
        loss = torch.zeros(())
        for _ in range(steps):
            self._optimizer.zero_grad()
            loss = self._loss(student, targets)
            loss.backward()  # type: ignore[no-untyped-call]
            self._optimizer.step()
        return float(loss.detach())

    def _loss(self, student: Pupil, targets: Tensor) -> Tensor:
        features = student.view(self(self.latents))
        logits = cast(Tensor, student.classifier(features))
        mean = logits.softmax(1).mean(0).clamp(min=1e-6)
        return (
            F.cross_entropy(logits, targets)
            + _ONE_HOT * F.cross_entropy(logits, logits.argmax(1))
            + _ENTROPY * (mean * mean.log()).sum()
            - _ACTIVATION * features.flatten(1).abs().mean()
        )
