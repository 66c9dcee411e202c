"""The networks of dataset condensation, drawn from seeds with PyTorch's default initialization.

A private generator draws them, so no other randomness of the process is touched, and (seed, index) means the same
network everywhere.
"""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import Tensor, nn

from silosynth.common.networks.pooling import AveragePool2
from silosynth.common.networks.shapes import ConvNetShape
from silosynth.common.procedural.dice import Dice
from silosynth.common.schema import Schema


class Network(nn.Module):
    """An extractor of features and, on top of them, one linear classifier."""

    def __init__(self, extractor: nn.Sequential, embedding: int, classes: int) -> None:
        super().__init__()
        self.extractor = extractor
        self.classifier = nn.Linear(embedding, classes)

    def embed(self, inputs: Tensor) -> Tensor:
        """Of images (count, channels, height, width) or rows of tables (count, columns), in single precision."""
        rounded = inputs.to(self.classifier.weight.dtype)
        return cast(Tensor, self.extractor(rounded)).float()

    def forward(self, inputs: Tensor) -> Tensor:
        return cast(Tensor, self.classifier(self.embed(inputs).to(self.classifier.weight.dtype)))


def draw_network(network: str, schema: Schema, width: int, *seeds: int, length_scale: float = 0.0) -> Network:
    """A "convnet", "linear" or "fourier" network of this width; several seeds, such as (seed, index), stand for one."""
    with torch.device("meta"):
        drawn = _KINDS[network](schema, width)
    return _initialized(drawn.to_empty(device="cpu"), Dice(*seeds), length_scale)


def _convnet(schema: Schema, width: int) -> Network:
    shape = ConvNetShape.of(schema, width)
    layers: list[nn.Module] = []
    for block in range(shape.blocks):
        inputs, padding = (width, 1) if block else (shape.channels, shape.first_padding)
        layers += [nn.Conv2d(inputs, width, 3, padding=padding), nn.GroupNorm(width, width), nn.ReLU(), AveragePool2()]
    return Network(nn.Sequential(*layers, nn.Flatten()), shape.embedding, schema.classes)


def _linear(schema: Schema, width: int) -> Network:
    extractor = nn.Sequential(nn.Flatten(), nn.Linear(schema.dimension, width))
    return Network(extractor, width, schema.classes)


def _fourier(schema: Schema, width: int) -> Network:
    return Network(nn.Sequential(nn.Flatten(), _Fourier(schema.dimension, width)), width, schema.classes)


class _Fourier(nn.Module):
    """Random Fourier features, of length 1: their mean over records is the mean embedding of a Gaussian kernel."""

    def __init__(self, inputs: int, features: int) -> None:
        super().__init__()
        self.frequencies = nn.Parameter(torch.empty(features // 2, inputs))

    def forward(self, rows: Tensor) -> Tensor:
        angles = rows @ self.frequencies.T
        return torch.cat([angles.cos(), angles.sin()], dim=1) / math.sqrt(len(self.frequencies))


_KINDS = {"convnet": _convnet, "linear": _linear, "fourier": _fourier}


@torch.no_grad()
def _initialized(network: Network, dice: Dice, length_scale: float) -> Network:
    """PyTorch's default: uniform within 1 / sqrt(inputs) for weights and biases, norms as the identity.

    Frequencies are normal: records are unlike at `length_scale` times the square root of their dimension.
    """
    for layer in network.modules():
        if isinstance(layer, _Fourier):
            rows, inputs = layer.frequencies.shape
            layer.frequencies.copy_(dice.normal(rows, inputs) / (length_scale * math.sqrt(inputs)))
        elif isinstance(layer, nn.GroupNorm):
            layer.reset_parameters()
        elif isinstance(layer, nn.Conv2d | nn.Linear):
            bound = 1 / math.sqrt(layer.weight[0].numel())
            for parameter in layer.parameters():
                parameter.copy_(dice.uniform(*parameter.shape, low=-bound, high=bound))
    return network
