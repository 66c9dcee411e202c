"""A generator of records of a given class, from normal latents."""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor

from silosynth.common.procedural.dice import Dice
from silosynth.common.schema import Schema
from silosynth.server.synthesis.generator_networks import patch_network

_LATENT = 32
_BATCH = 250


class ConditionalGenerator:
    def __init__(self, schema: Schema, seed: int) -> None:
        self._classes = schema.classes
        self.network = patch_network(schema, _LATENT + schema.classes, seed)

    def draw(self, per_class: int, dice: Dice) -> tuple[Tensor, Tensor]:
        """New records, sorted by class, with gradients to the network."""
        labels = torch.arange(self._classes).repeat_interleave(per_class)
        return self._of(dice.normal(len(labels), _LATENT), labels), labels

    @torch.no_grad()
    def sample(self, per_class: int, dice: Dice) -> tuple[Tensor, Tensor]:
        """The same in batches, when nothing more is to be learned."""
        self.network.eval()
        labels = torch.arange(self._classes).repeat_interleave(per_class)
        made = [self._of(dice.normal(len(part), _LATENT), part) for part in torch.split(labels, _BATCH)]
        self.network.train()
        return torch.cat(made), labels

    def _of(self, latents: Tensor, labels: Tensor) -> Tensor:
        asked = F.one_hot(labels, self._classes).float()
        return cast(Tensor, self.network(torch.cat([latents, asked], dim=1)))
