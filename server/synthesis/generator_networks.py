"""Networks that turn vectors into records in [-1, 1], with room for sides that are no multiple of 4."""

from __future__ import annotations

import math

import torch
from torch import nn

from silosynth.common.schema import Schema

_WIDTH = 32
_SLOPE = 0.2


def generator_network(schema: Schema, inputs: int, seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return _images(schema, inputs) if schema.is_image else _rows(schema, inputs)


def _images(schema: Schema, inputs: int) -> nn.Module:
    """Twice enlarged by two; images are cut to their sides afterwards."""
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
    )


def _rows(schema: Schema, inputs: int) -> nn.Module:
    wide = 4 * _WIDTH
    hidden = [nn.Linear(inputs, wide), nn.BatchNorm1d(wide), nn.LeakyReLU(_SLOPE)]
    return nn.Sequential(*hidden, nn.Linear(wide, schema.dimension), nn.Tanh())
