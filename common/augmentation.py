"""Differentiable Siamese augmentation (DSA): one random change, the same for all images and for all who know its seed.

The server matches synthetic images with sums over private ones, so both sides must see images through the same change,
and gradients must pass through it. Strengths are those of Zhao and Bilen, "Dataset condensation with differentiable
Siamese augmentation". Images are (count, channels, height, width), centred at 0, which is also what fills borders.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from silosynth.common.errors import ConfigError
from silosynth.common.procedural.dice import Dice

_BRIGHTNESS, _SATURATION, _CONTRAST = 1.0, 2.0, 0.5
_CROP_PADDING, _CUTOUT, _FLIP, _SCALE, _ROTATION = 0.125, 0.5, 0.5, 1.2, 15.0


def augment(images: Tensor, ops: tuple[str, ...] | str, seed: int) -> Tensor:
    """The images through one of `ops` ("color,crop" or a tuple of names), chosen and parametrized by `seed` alone."""
    names = tuple(filter(None, ops.split(","))) if isinstance(ops, str) else ops
    unknown = sorted(set(names) - set(OPS))
    if unknown:
        raise ConfigError(f"unknown augmentation {', '.join(unknown)}; choose among {', '.join(OPS)}")
    if not names:
        return images
    dice = Dice(seed)
    return OPS[names[int(dice.integers(len(names)))]](images, dice)


def _color(images: Tensor, dice: Dice) -> Tensor:
    brightness, saturation, contrast = dice.uniform(3).tolist()
    images = images + (brightness - 0.5) * _BRIGHTNESS
    images = _stretched(images, images.mean(dim=1, keepdim=True), saturation * _SATURATION)
    return _stretched(images, images.mean(dim=(1, 2, 3), keepdim=True), contrast + _CONTRAST)


def _stretched(images: Tensor, means: Tensor, factor: float) -> Tensor:
    return torch.lerp(means.expand_as(images), images, factor)


def _crop(images: Tensor, dice: Dice) -> Tensor:
    """Shifted by up to an eighth of each side; what enters is 0."""
    sides = images.shape[-2:]
    pads = [int(side * _CROP_PADDING + 0.5) for side in sides]
    top, left = (int(dice.integers(2 * pad + 1)) for pad in pads)
    padded = F.pad(images, (pads[1], pads[1], pads[0], pads[0]))
    return padded[..., top : top + sides[0], left : left + sides[1]]


def _cutout(images: Tensor, dice: Dice) -> Tensor:
    """A window of half of each side becomes 0; its centre is anywhere, so it may lie partly outside."""
    mask = torch.zeros(images.shape[-2:], dtype=images.dtype, device=images.device)
    windows = []
    for side in images.shape[-2:]:
        length = int(side * _CUTOUT + 0.5)
        start = int(dice.integers(side + 1 - length % 2)) - length // 2
        windows.append(slice(max(start, 0), start + length))
    mask[windows[0], windows[1]] = 1
    return images * (1 - mask)


def _flip(images: Tensor, dice: Dice) -> Tensor:
    return images.flip(-1) if bool(dice.chance(_FLIP)) else images


def _scale(images: Tensor, dice: Dice) -> Tensor:
    width, height = dice.uniform(2, low=1 / _SCALE, high=_SCALE).tolist()
    return _warped(images, [[width, 0.0, 0.0], [0.0, height, 0.0]])


def _rotate(images: Tensor, dice: Dice) -> Tensor:
    angle = math.radians(_ROTATION) * float(dice.uniform(low=-1.0))
    cosine, sine = math.cos(angle), math.sin(angle)
    return _warped(images, [[cosine, -sine, 0.0], [sine, cosine, 0.0]])


def _warped(images: Tensor, matrix: list[list[float]]) -> Tensor:
    """The same affine map for all images."""
    maps = torch.tensor(matrix, dtype=images.dtype, device=images.device).expand(len(images), 2, 3)
    grid = F.affine_grid(maps, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, align_corners=False)


OPS: dict[str, Callable[[Tensor, Dice], Tensor]] = {
    "color": _color,
    "crop": _crop,
    "cutout": _cutout,
    "flip": _flip,
    "scale": _scale,
    "rotate": _rotate,
}
