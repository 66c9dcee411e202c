"""What the networks' layers look like, as plain numbers: queries size their answers without loading torch."""

from __future__ import annotations

from dataclasses import dataclass

from silosynth.common.schema import Schema

_MOST_BLOCKS = 3
_SMALLEST_MAP = 2  # an 8x8 image pooled to a single point loses where things are: 2 blocks there, 3 from 16x16 on


@dataclass(frozen=True)
class ConvNetShape:
    """Blocks of conv3x3 - GroupNorm - ReLU - AvgPool2, each halving the sides."""

    channels: int
    width: int
    first_padding: int
    blocks: int
    height: int  # of the last map
    breadth: int

    @classmethod
    def of(cls, schema: Schema, width: int) -> ConvNetShape:
        height, breadth, channels = schema.shape
        first_padding = 3 if height == breadth == 28 else 1  # 28x28 grows to 32x32, as in the papers
        height, breadth = (side + 2 * (first_padding - 1) for side in (height, breadth))
        blocks = 0
        while blocks < _MOST_BLOCKS and min(height, breadth) >= 2 * _SMALLEST_MAP:
            height, breadth, blocks = height // 2, breadth // 2, blocks + 1
        return cls(channels, width, first_padding, blocks, height, breadth)

    def parameters(self, classes: int) -> int:
        """Of the whole network, its classifier included."""
        first, later = (9 * inputs * self.width + 3 * self.width for inputs in (self.channels, self.width))
        body = first + (self.blocks - 1) * later if self.blocks else 0
        return body + (self.embedding + 1) * classes

    @property
    def embedding(self) -> int:
        return (self.width if self.blocks else self.channels) * self.height * self.breadth


def embedding_size(network: str, schema: Schema, width: int) -> int:
    """Of the layer before the classifier."""
    return ConvNetShape.of(schema, width).embedding if network == "convnet" else width


CLASSIFIERS = ("linear", "mlp", "convnet")
HIDDEN = 128  # of the mlp
CONVNET_WIDTH = 32


def classifier_size(network: str, schema: Schema, features: int) -> int:
    """How many weights a classifier has that sees so many features of a record; a convnet sees the record itself."""
    classes = schema.classes
    if network == "linear":
        return (features + 1) * classes
    if network == "mlp":
        return (features + 1) * HIDDEN + (HIDDEN + 1) * classes
    shape, width = ConvNetShape.of(schema, CONVNET_WIDTH), CONVNET_WIDTH
    inputs = [shape.channels, *[width] * (shape.blocks - 1)][: shape.blocks]
    return sum(9 * channels * width + 3 * width for channels in inputs) + (shape.embedding + 1) * classes
