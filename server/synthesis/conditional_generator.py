"""A generator of records of a given class, from normal latents."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from silosynth.common.procedural.dice import Dice
from silosynth.common.schema import Schema
from silosynth.server.synthesis.generator_networks import generator_network

_LATENT = 32
_BATCH = 250


class ConditionalGenerator:
    def __init__(self, schema: Schema, seed: int) -> None:
        self._schema = schema
        self._network = generator_network(schema, _LATENT + schema.classes, seed)

    def parameters(self) -> Iterator[nn.Parameter]:
        return self._network.parameters()

    def draw(self, per_class: int, dice: Dice) -> tuple[Tensor, Tensor]:
        """New records, sorted by class, with gradients to the network."""
        labels = torch.arange(self._schema.classes).repeat_interleave(per_class)
        return self._of(dice.normal(len(labels), _LATENT), labels), labels

    @torch.no_grad()
    def sample(self, per_class: int, dice: Dice) -> tuple[Tensor, Tensor]:
        """The same in batches, when nothing more is to be learned."""
        self._network.eval()
        labels = torch.arange(self._schema.classes).repeat_interleave(per_class)
        made = [self._of(dice.normal(len(part), _LATENT), part) for part in torch.split(labels, _BATCH)]
        self._network.train()
        return torch.cat(made), labels

    def tensors(self) -> dict[str, npt.NDArray[Any]]:
        return {name: tensor.detach().cpu().numpy() for name, tensor in self._network.state_dict().items()}

    def _of(self, latents: Tensor, labels: Tensor) -> Tensor:
        asked = F.one_hot(labels, self._schema.classes).float()
        made = cast(Tensor, self._network(torch.cat([latents, asked], dim=1)))
        if not self._schema.is_image:
            return made
        height, width, _ = self._schema.shape
        return made[:, :, :height, :width]
