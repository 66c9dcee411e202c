"""Models trained on synthetic data to find out what it is worth."""

from __future__ import annotations

from torch import Tensor, nn

from silosynth.common.errors import ConfigError
from silosynth.common.schema import Schema

_WIDTH = 32
_MOST_BLOCKS = 3
_SMALLEST_MAP = 2  # an 8x8 image pooled to a single point loses where things are: 2 blocks there, 3 from 16x16 on


def model_for(name: str, schema: Schema) -> str:
    """The model's full name: "auto" is the ConvNet for images and the linear model for tables."""
    if name == "auto":
        return "convnet" if schema.is_image else "linear"
    if name == "linear" or (name == "convnet" and schema.is_image):
        return name
    raise ConfigError(
        f"evaluation model {name!r} does not fit these records: choose auto, linear or, for images, convnet"
    )


def build_model(name: str, schema: Schema) -> nn.Module:
    """A fresh model from flat records in [-1, 1] to class scores."""
    if model_for(name, schema) == "linear":
        return nn.Linear(schema.dimension, schema.classes)
    return _convnet(schema)


def _convnet(schema: Schema) -> nn.Sequential:
    """The ConvNet of the dataset condensation papers, narrower: blocks of conv3x3 - GroupNorm - ReLU - AvgPool2."""
    height, width, channels = schema.shape
    layers: list[nn.Module] = [nn.Unflatten(1, schema.shape), _ChannelsFirst()]
    for _ in range(_MOST_BLOCKS):
        if min(height, width) < 2 * _SMALLEST_MAP:
            break
        layers += [nn.Conv2d(channels, _WIDTH, 3, padding=1), nn.GroupNorm(_WIDTH, _WIDTH), nn.ReLU(), nn.AvgPool2d(2)]
        channels, height, width = _WIDTH, height // 2, width // 2
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels * height * width, schema.classes))


class _ChannelsFirst(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return images.permute(0, 3, 1, 2).contiguous()
