"""Changes of images that need no model: mixing, warping, light and colour, smooth noise. Every image gets its own."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from silosynth.common.auxiliary import as_inputs
from silosynth.common.datasets.records import Labels, to_bytes_range, to_unit_range
from silosynth.common.procedural.dice import Dice
from silosynth.common.schema import Schema
from silosynth.server.generators.proposals.base import Pixels

_AFFINE, _BEND, _LIGHT, _COLOUR, _NOISE = 0.25, 0.15, 0.4, 0.2, 0.3  # standard deviations at strength 1
_BENDS, _FINEST = 4, 2  # places along a side where a bend is drawn; pixels that one of noise covers at the least


def changed(images: Pixels, labels: Labels, strength: float, seed: int, schema: Schema) -> Pixels:
    """Half of the changes happen to an image, each of any size up to `strength`: some refine it, some renew it."""
    inputs, dice = as_inputs(to_unit_range(images.reshape(len(images), -1)), schema), Dice(seed)

    def size() -> Tensor:
        shape = (len(inputs), 1, 1, 1)
        return strength * dice.uniform(*shape) * dice.chance(0.5, *shape)

    made = _mixed(inputs, labels, size(), dice)
    for change in (_warped, _lit, _noisy):
        made = change(made, size(), dice)
    return to_bytes_range(made.permute(0, 2, 3, 1).numpy())


def _mixed(images: Tensor, labels: Labels, size: Tensor, dice: Dice) -> Tensor:
    """With another image of the same label, here more and there less."""
    partners = np.arange(len(images))
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        partners[members] = members[dice.uniform(len(members)).argsort().numpy()]
    share = size * torch.sigmoid(2 * _smooth(dice, images, 1, _BENDS))
    return torch.lerp(images, images[partners], share)


def _warped(images: Tensor, size: Tensor, dice: Dice) -> Tensor:
    count = len(images)
    straight = torch.eye(2, 3).expand(count, 2, 3)
    maps = straight + _AFFINE * size[:, 0] * dice.normal(count, 2, 3)
    bends = _BEND * size * _smooth(dice, images, 2, _BENDS)
    grid = F.affine_grid(maps, list(images.shape), align_corners=False) + bends.permute(0, 2, 3, 1)
    return F.grid_sample(images, grid, padding_mode="border", align_corners=False)


def _lit(images: Tensor, size: Tensor, dice: Dice) -> Tensor:
    """Brightness, contrast, and of each channel some more."""
    count, channels = images.shape[:2]
    means = images.mean(dim=(1, 2, 3), keepdim=True)
    contrast = torch.exp2(_LIGHT * size * dice.normal(count, 1, 1, 1))
    shift = _LIGHT * dice.normal(count, 1, 1, 1) + _COLOUR * dice.normal(count, channels, 1, 1)
    return means + (images - means) * contrast + size * shift


def _noisy(images: Tensor, size: Tensor, dice: Dice) -> Tensor:
    """Of one coarseness a call: over many calls, of all."""
    finest = max(min(images.shape[-2:]) // _FINEST, 2)
    places = 2 + int(dice.integers(finest - 1))
    return images + _NOISE * size * _smooth(dice, images, images.shape[1], places)


def _smooth(dice: Dice, images: Tensor, channels: int, places: int) -> Tensor:
    drawn = dice.normal(len(images), channels, places, places)
    return F.interpolate(drawn, images.shape[-2:], mode="bicubic", align_corners=False)
