"""Networks that turn vectors into records in [-1, 1], as other networks take them."""

from __future__ import annotations

import math
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor, nn

from silosynth.common.schema import Schema

_WIDTH = 32
_SLOPE = 0.2


def generator_network(schema: Schema, inputs: int, seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return _images(schema, inputs) if schema.is_image else _rows(schema, inputs)


def tensors_of(network: nn.Module) -> dict[str, npt.NDArray[Any]]:
    """For a release; without BatchNorm's batch counters, which nobody needs to use it."""
    tensors = network.state_dict().items()
    return {name: tensor.detach().cpu().numpy() for name, tensor in tensors if tensor.is_floating_point()}


def _images(schema: Schema, inputs: int) -> nn.Module:
    """Twice enlarged by two, then cut: sides may be no multiple of 4."""
    height, width, channels = schema.shape
    rows, columns = math.ceil(height / 4), math.ceil(width / 4)
    return nn.Sequential(
        nn.Linear(inputs, 2 * _WIDTH * rows * columns),
        nn.Unflatten(1, (2 * _WIDTH, rows, columns)),
        nn.BatchNorm2d(2 * _WIDTH),
        nn.Upsample(scale_factor=2),
        nn.Conv2d(2 * _WIDTH, 2 * _WIDTH, 3, padding=1),
        nn.BatchNorm2d(2 * _WIDTH),
        nn.LeakyReLU(_SLOPE),
        nn.Upsample(scale_factor=2),
        nn.Conv2d(2 * _WIDTH, _WIDTH, 3, padding=1),
        nn.BatchNorm2d(_WIDTH),
        nn.LeakyReLU(_SLOPE),
        nn.Conv2d(_WIDTH, channels, 3, padding=1),
        nn.Tanh(),
        _Cut(height, width),
    )


class _Cut(nn.Module):
    def __init__(self, height: int, width: int) -> None:
        super().__init__()
        self._height, self._width = height, width

    def forward(self, images: Tensor) -> Tensor:
        return images[:, :, : self._height, : self._width]


def _rows(schema: Schema, inputs: int) -> nn.Module:
    wide = 4 * _WIDTH
    hidden = [nn.Linear(inputs, wide), nn.BatchNorm1d(wide), nn.LeakyReLU(_SLOPE)]
    return nn.Sequential(*hidden, nn.Linear(wide, schema.dimension), nn.Tanh())
