"""How small classifiers see records: through a frozen public network, or as they are."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from silosynth.common.auxiliary import as_inputs
from silosynth.common.backbones import Backbone
from silosynth.common.datasets.records import Features
from silosynth.common.networks.extractors import draw_network
from silosynth.common.networks.shapes import CONVNET_WIDTH, HIDDEN
from silosynth.common.procedural.dice import Dice
from silosynth.common.schema import Schema
from silosynth.common.statistics.spatial import SpatialFeatures

_BATCH = 250  # always so many at once, some of them blank: how many there are must not matter to any


@dataclass(frozen=True)
class View:
    """From inputs, as networks take them, to what classifiers see of them."""

    schema: Schema
    backbone: Backbone | None
    device: torch.device

    def features(self) -> int:
        """How many a backbone gives of a record; 0 without one."""
        return SpatialFeatures(self.backbone).size(self.schema.shape) if self.backbone else 0

    def __call__(self, inputs: Tensor) -> Tensor:
        """Differentiable. Features are about as large as 1 each, as networks like it."""
        if self.backbone is None:
            return inputs
        spatial = SpatialFeatures(self.backbone)
        return spatial(inputs) * math.sqrt(spatial.size(self.schema.shape))

    @torch.inference_mode()
    def of_records(self, features: Features) -> Tensor:
        """Of flat records in [-1, 1], in batches of one size."""
        seen = list[Tensor]()
        for start in range(0, max(len(features), 1), _BATCH):
            part = features[start : start + _BATCH]
            blanks = torch.zeros(_BATCH - len(part), self.schema.dimension)
            filled = torch.cat([torch.from_numpy(part), blanks]).numpy()
            seen.append(self(as_inputs(filled, self.schema).to(self.device))[: len(part)])
        return torch.cat(seen).clone()


def draw_classifier(network: str, schema: Schema, features: int, seed: int) -> nn.Module:
    """From what a view shows to class logits. A last layer of 0 says nothing before anything is learned."""
    if network == "convnet":
        return draw_network("convnet", schema, CONVNET_WIDTH, seed)
    seen, dice = features or schema.dimension, Dice(seed)
    layers: list[nn.Module] = [nn.Flatten()]
    if network == "mlp":
        layers += [_drawn(nn.Linear(seen, HIDDEN), dice), nn.ReLU()]
        seen = HIDDEN
    last = nn.Linear(seen, schema.classes)
    for parameter in last.parameters():
        nn.init.zeros_(parameter)
    return nn.Sequential(*layers, last)


@torch.no_grad()
def _drawn(layer: nn.Linear, dice: Dice) -> nn.Linear:
    bound = 1 / math.sqrt(layer.in_features)
    for parameter in layer.parameters():
        parameter.copy_(dice.uniform(*parameter.shape, low=-bound, high=bound))
    return layer
