"""Residual networks whose blocks begin with BatchNorm and SiLU, made to be looked through and differentiated through.

What enters each BatchNorm is what statistics are taken of. Gradients that reach the image through convolutions of
stride 2 are uneven from pixel to pixel (checkerboards, in synthesized images), so the small networks shrink by
averaging instead. WRN-22-8 keeps its strides: it is the network of the SPS paper.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

import torch.nn.functional as F
from torch import Tensor, nn

STEM_BLUR = (1.0, 3.0, 3.0, 1.0)


class Halving(Enum):
    """How a block halves height and width."""

    STRIDE = "stride"
    AVERAGE = "average"


class ResidualBlock(nn.Module):
    """Twice BatchNorm, SiLU and convolution, beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, halving: Halving | None = None) -> None:
        super().__init__()
        stride = 2 if halving is Halving.STRIDE else 1
        self.norm1 = nn.BatchNorm2d(inputs)
        self.shrink = nn.AvgPool2d(2, ceil_mode=True) if halving is Halving.AVERAGE else nn.Identity()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if inputs != outputs else None

    def forward(self, x: Tensor) -> Tensor:
        active = self.shrink(F.silu(self.norm1(x)))
        beside = x if self.shortcut is None else self.shortcut(active)
        inner: Tensor = self.conv2(F.silu(self.norm2(self.conv1(active))))
        return inner + beside


class BlurredStem(nn.Module):
    """A 3x3 convolution, a binomial blur and a stride of 2, folded into one 6x6 convolution: no aliasing, no cost."""

    def __init__(self, channels: int, outputs: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, outputs, 3, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        line = self.conv.weight.new_tensor(STEM_BLUR) / sum(STEM_BLUR)
        outputs, channels, *kernel = self.conv.weight.shape
        kernels = self.conv.weight.reshape(outputs * channels, 1, *kernel)
        blurred = F.conv2d(kernels, (line[:, None] * line)[None, None], padding=len(STEM_BLUR) - 1)
        return F.conv2d(x, blurred.reshape(outputs, channels, *blurred.shape[2:]), stride=2, padding=2)


class ResidualNetwork(nn.Module):
    """A stem, groups of blocks (each group after the first halves the sides), a last BatchNorm, class logits."""

    def __init__(
        self, stem: nn.Module, stem_width: int, widths: tuple[int, ...], depth: int, classes: int, halving: Halving
    ) -> None:
        super().__init__()
        self.stem = stem
        self.blocks = nn.Sequential(*_blocks(stem_width, widths, depth, halving))
        self.norm = nn.BatchNorm2d(widths[-1])
        self.head = nn.Linear(widths[-1], classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        features = F.silu(self.norm(self.blocks(self.stem(x))))
        logits: Tensor = self.head(features.mean((2, 3)))
        return logits


def _blocks(inputs: int, widths: tuple[int, ...], depth: int, halving: Halving) -> Iterator[ResidualBlock]:
    for group, width in enumerate(widths):
        for place in range(depth):
            yield ResidualBlock(inputs, width, halving if group > 0 and place == 0 else None)
            inputs = width


def small_residual(widths: tuple[int, ...], depth: int, channels: int, classes: int) -> ResidualNetwork:
    """For images of 8x8 to 32x32: the stem halves them at once, which makes everything after it four times cheaper."""
    return ResidualNetwork(BlurredStem(channels, widths[0]), widths[0], widths, depth, classes, Halving.AVERAGE)


def wide_residual(depth: int, width: int, channels: int, classes: int) -> ResidualNetwork:
    """WRN-depth-width of Zagoruyko and Komodakis, with SiLU: (depth - 4) / 6 blocks in each of three groups."""
    stem = nn.Conv2d(channels, 16, 3, padding=1, bias=False)
    widths = (16 * width, 32 * width, 64 * width)
    return ResidualNetwork(stem, 16, widths, (depth - 4) // 6, classes, Halving.STRIDE)
