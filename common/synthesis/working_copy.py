"""A backbone of one's own, for one worker on one device."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor

from silosynth.common.backbones import Backbone


class _HalfPrecise(Backbone):
    """Computes in bfloat16 inside the network only: moments are differences, and need all the digits there are."""

    def forward_taps(self, images: Tensor) -> list[Tensor]:
        with torch.autocast(images.device.type, dtype=torch.bfloat16):
            taps = super().forward_taps(images)
        return [tap.float() for tap in taps]


def working_copy(backbone: Backbone, device: torch.device, autocast: bool) -> Backbone:
    """Autocast is for GPUs: not every other processor has the instructions that torch would use."""
    kind = _HalfPrecise if autocast and device.type == "cuda" else Backbone
    return kind(backbone.blueprint, deepcopy(backbone.network), backbone.recipe).to(device)
