"""An endless stream of labelled public images, drawn from a seed."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import count

import torch
from torch import Tensor

from silosynth.common.procedural.dice import Dice
from silosynth.common.procedural.family import Family
from silosynth.common.procedural.fractals import fractals
from silosynth.common.procedural.painting import paint, placed_points
from silosynth.common.procedural.shapes import curves, silhouettes, solids, strokes
from silosynth.common.procedural.textures import cells, noises, spirals, waves

VERSION = 1
"""Goes up whenever the same seed would give other images."""

_CLASS_SEED = 20261116
"""What the classes are does not depend on the seed of a stream."""
_PALETTE = 24


@cache
def families() -> tuple[Family, ...]:
    dice = Dice(_CLASS_SEED)
    return (
        solids(dice, 16),
        curves(dice, 12),
        silhouettes(dice, 20),
        strokes(dice, 24),
        fractals(dice, 8),
        waves(dice, 12),
        spirals(dice, 8),
        noises(dice, 10),
        cells(dice, 10),
    )


def class_count() -> int:
    return sum(family.classes for family in families())


def procedural_batches(
    seed: int, size: int, channels: int, resolution: int, device: torch.device | str = "cpu", start: int = 0
) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches for ever: images (size, channels, resolution, resolution) in [-1, 1], and labels.

    A batch depends on the seed and its number alone: a stream can be taken up anywhere (`start`).
    """
    for number in count(start):
        dice = Dice(seed, number, device=device)
        labels = dice.integers(class_count(), size)
        textures = _palette(dice, resolution)
        fills, grounds = (textures[dice.integers(_PALETTE, size)] for _ in range(2))
        yield paint(dice, _values(dice, labels, resolution), fills, grounds, channels), labels


def _values(dice: Dice, labels: Tensor, side: int) -> Tensor:
    """One family after another: images of a family are drawn together."""
    values = torch.empty(len(labels), side, side, device=labels.device)
    first = 0
    for family in families():
        (rows,) = torch.nonzero((labels >= first) & (labels < first + family.classes), as_tuple=True)
        if len(rows):
            points = placed_points(dice, len(rows), side, family.is_texture)
            values[rows] = family.draw(labels[rows] - first, points, dice).reshape(-1, side, side)
        first += family.classes
    return values


def _palette(dice: Dice, side: int) -> Tensor:
    """A few textures a batch, to fill figures and grounds with."""
    textures = [family for family in families() if family.is_texture]
    share = _PALETTE // len(textures)
    drawn = [
        family.draw(dice.integers(family.classes, share), placed_points(dice, share, side, True), dice)
        for family in textures
    ]
    return torch.cat(drawn).reshape(-1, side, side)
