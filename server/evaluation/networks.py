"""Networks for small images as the dataset condensation papers define them, of any width.

Images are (count, channels, height, width). Sides are padded to a multiple of 8, so 28x28 becomes 32x32 as in the
papers, and maps shrink to 2x2 at least: normalizing a map of one point would erase it.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from silosynth.common.schema import Schema

_SIDE_UNIT = 8
_SMALLEST_MAP = 2


def linear(schema: Schema, _width: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(schema.dimension, schema.classes))


def mlp(schema: Schema, width: int) -> nn.Module:
    """Two hidden layers."""
    hidden = [nn.Linear(schema.dimension, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(width, schema.classes))


LENET_SMALLEST_SIDE = 9  # padded to 16; smaller images shrink to nothing


def lenet(schema: Schema, _width: int) -> nn.Module:
    height, width = _canvas(schema)
    features = [nn.Conv2d(schema.shape[2], 6, 5), nn.ReLU(), nn.MaxPool2d(2)]
    features += [nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    height, width = ((side - 4) // 2 for side in (height, width))
    embedding = 16 * ((height - 4) // 2) * ((width - 4) // 2)
    head = [nn.Linear(embedding, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, schema.classes)]
    return nn.Sequential(_padding(schema), *features, *head)


def alexnet(schema: Schema, width: int) -> nn.Module:
    """Five convolutions without normalization; the papers' is 128 wide."""
    height, breadth = _canvas(schema)
    middle, wide = width * 3 // 2, width * 2
    plan = [(width, 5, True), (middle, 5, True), (wide, 3, False), (middle, 3, False), (middle, 3, True)]
    layers: list[nn.Module] = [_padding(schema)]
    channels = schema.shape[2]
    for outputs, kernel, pooled in plan:
        layers += [nn.Conv2d(channels, outputs, kernel, padding=kernel // 2), nn.ReLU()]
        if pooled and _can_halve(height, breadth):
            layers.append(nn.MaxPool2d(2))
            height, breadth = height // 2, breadth // 2
        channels = outputs
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels * height * breadth, schema.classes))


def vgg11(schema: Schema, width: int) -> nn.Module:
    """Eight normalized convolutions, then the average over all positions; the papers' is 64 wide."""
    height, breadth = _canvas(schema)
    layers: list[nn.Module] = [_padding(schema)]
    channels = schema.shape[2]
    for factor, pooled in [(1, True), (2, True), (4, False), (4, True), (8, False), (8, True), (8, False), (8, True)]:
        layers += [nn.Conv2d(channels, factor * width, 3, padding=1), _norm(factor * width), nn.ReLU()]
        if pooled and _can_halve(height, breadth):
            layers.append(nn.MaxPool2d(2))
            height, breadth = height // 2, breadth // 2
        channels = factor * width
    return nn.Sequential(*layers, _Average(), nn.Linear(channels, schema.classes))


def resnet18(schema: Schema, width: int) -> nn.Module:
    """Four groups of two residual blocks, then the average over all positions; the papers' is 64 wide."""
    height, breadth = _canvas(schema)
    layers: list[nn.Module] = [_padding(schema), nn.Conv2d(schema.shape[2], width, 3, padding=1, bias=False)]
    layers += [_norm(width), nn.ReLU()]
    channels = width
    for factor in (1, 2, 4, 8):
        stride = 2 if factor > 1 and _can_halve(height, breadth) else 1
        height, breadth = height // stride, breadth // stride
        layers += [_Block(channels, factor * width, stride), _Block(factor * width, factor * width, 1)]
        channels = factor * width
    return nn.Sequential(*layers, _Average(), nn.Linear(channels, schema.classes))


class _Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            _norm(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            _norm(outputs),
        )
        reshaped = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), _norm(outputs))
        self.beside = nn.Identity() if (inputs, stride) == (outputs, 1) else reshaped

    def forward(self, maps: Tensor) -> Tensor:
        return F.relu(self.inner(maps) + self.beside(maps))


class _Average(nn.Module):
    def forward(self, maps: Tensor) -> Tensor:
        return maps.mean((2, 3))


def _norm(channels: int) -> nn.Module:
    """Each map by itself, as the papers do: it needs no batch statistics, which few synthetic images would bend."""
    return nn.GroupNorm(channels, channels)


def _canvas(schema: Schema) -> tuple[int, int]:
    height, width, _ = schema.shape
    return height + -height % _SIDE_UNIT, width + -width % _SIDE_UNIT


def _padding(schema: Schema) -> nn.Module:
    """Zeros around the image: grey, in images from -1 to 1."""
    missing = [padded - side for padded, side in zip(_canvas(schema), schema.shape, strict=False)]
    top, left = (total // 2 for total in missing)
    return nn.ZeroPad2d((left, missing[1] - left, top, missing[0] - top))


def _can_halve(height: int, width: int) -> bool:
    return min(height, width) >= 2 * _SMALLEST_MAP
