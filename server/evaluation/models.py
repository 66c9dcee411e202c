"""Models trained on synthetic data to find out what it is worth."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from silosynth.common.errors import ConfigError
from silosynth.common.schema import Schema


_SMALLEST_MAP = 3


def build_model(name: str, schema: Schema) -> nn.Module:
    """A fresh model from flat records in [-1, 1] to class scores; images first become channels x height x width."""
    if name == "linear":
        return nn.Linear(schema.dimension, schema.classes)
    if name == "convnet" and schema.is_image:
        return _convnet(schema)
    raise ConfigError(f"no evaluation model is called {name!r} for these records: choose linear, or convnet for images")


def _convnet(schema: Schema, width: int = 32, blocks: int = 3) -> nn.Sequential:
    """Blocks of conv3x3 - GroupNorm - ReLU - AvgPool2, then a linear layer.

    Small images get fewer blocks: normalizing each channel over a map of less than 3x3 would erase what it holds.
    """
    height, width_of_image, channels = schema.shape
    layers: list[nn.Module] = [nn.Unflatten(1, (height, width_of_image, channels)), _ChannelsFirst()]
    for _ in range(blocks):
        if min(height, width_of_image) // 2 < _SMALLEST_MAP:
            break
        layers += [
            nn.Conv2d(channels, width, 3, padding=1),
            nn.GroupNorm(width, width),
            nn.ReLU(),
            nn.AvgPool2d(2),
        ]
        channels, height, width_of_image = width, height // 2, width_of_image // 2
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels * height * width_of_image, schema.classes))


class _ChannelsFirst(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return images.permute(0, 3, 1, 2).contiguous(memory_format=torch.contiguous_format)
