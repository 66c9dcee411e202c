"""From values to pictures: placement, colours, fills and grounds, light, blur and grain."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from silosynth.common.procedural.dice import Dice

MIN_CONTRAST = 0.5
BENDS = 4


def placed_points(dice: Dice, images: int, side: int, is_texture: bool) -> Tensor:
    """Where the pixels of each image lie in its figure's square: turned, scaled, sheared, moved and gently bent."""
    line = (torch.arange(side, device=dice.device) + 0.5) * (2 / side) - 1
    grid = torch.stack(torch.meshgrid(line, line, indexing="xy"), -1).reshape(-1, 2)
    turn = dice.normal(images) * 0.2
    smallest, largest = (-0.3, 0.3) if is_texture else (-0.15, 0.75)
    size = 2 ** dice.uniform(images, 1, 1, low=smallest, high=largest)
    stretch = 2 ** (dice.normal(images) * 0.2)
    zero = torch.zeros_like(turn)
    scale = torch.stack((stretch, dice.normal(images) * 0.1, zero, 1 / stretch), -1).reshape(-1, 2, 2)
    rotation = torch.stack((turn.cos(), turn.sin(), -turn.sin(), turn.cos()), -1).reshape(-1, 2, 2)
    shift = dice.normal(images, 1, 2) * (1.0 if is_texture else 0.12)
    return (grid + _bend(dice, images, side) - shift) @ (rotation @ scale * size)


def _bend(dice: Dice, images: int, side: int) -> Tensor:
    """A few slow cosines each way, with random weights."""
    weights = dice.normal(images, 2, BENDS, BENDS) * dice.uniform(images, 1, 1, 1, high=0.06)
    place = (torch.arange(side, device=weights.device) + 0.5) / side
    cosines = torch.cos(math.pi * torch.arange(BENDS, device=weights.device)[:, None] * place)
    return (cosines.T @ weights @ cosines).flatten(2).mT


def paint(dice: Dice, values: Tensor, fills: Tensor, grounds: Tensor, channels: int) -> Tensor:
    """Values in [0, 1] choose between ground and figure, each of a colour and, half of the time, a texture."""
    images, side = values.shape[0], values.shape[-1]
    ground, figure = _two_colours(dice, images, channels)
    ground = ground + _textured(dice, grounds, channels)
    figure = figure + _textured(dice, fills, channels)
    picture = ground + (figure - ground) * values[:, None]
    line = torch.linspace(-1, 1, side, device=values.device)
    slope = dice.normal(images, 2, 1, 1, 1) * 0.15
    light = 1 + slope[:, 0] * line + slope[:, 1] * line[:, None]
    return _grain(dice, _blur(dice, picture) * light).clamp(-1, 1)


def _two_colours(dice: Dice, images: int, channels: int) -> tuple[Tensor, Tensor]:
    """A ground, often black or white, and a figure that stands out against it."""
    shape = (images, channels, 1, 1)
    ground, figure = dice.uniform(*shape, low=-1), dice.uniform(*shape, low=-1)
    kind = dice.uniform(images, 1, 1, 1)
    ground = torch.where(kind < 0.4, -1.0, torch.where(kind > 0.9, 1.0, ground))
    near = (figure - ground).square().mean(1, keepdim=True).sqrt() < MIN_CONTRAST
    return ground, torch.where(near, torch.where(ground > 0, figure - 1, figure + 1), figure)


def _textured(dice: Dice, texture: Tensor, channels: int) -> Tensor:
    images = len(texture)
    strength = dice.chance(0.5, images, 1, 1, 1) * dice.uniform(images, 1, 1, 1, high=0.7)
    tint = dice.uniform(images, channels, 1, 1, low=0.3) * strength
    return tint * (texture[:, None] * 2 - 1)


def _blur(dice: Dice, picture: Tensor) -> Tensor:
    kernel = torch.tensor([0.25, 0.5, 0.25], device=picture.device)
    window = (kernel[:, None] * kernel).expand(picture.shape[1], 1, 3, 3)
    padded = F.pad(picture, (1, 1, 1, 1), mode="replicate")
    blurred = F.conv2d(padded, window, groups=picture.shape[1])
    amount = (dice.uniform(len(picture), 1, 1, 1) * 2 - 1).clamp_min(0)
    return picture + (blurred - picture) * amount


def _grain(dice: Dice, picture: Tensor) -> Tensor:
    strength = dice.chance(0.5, len(picture), 1, 1, 1) * dice.uniform(len(picture), 1, 1, 1, high=0.15)
    return picture + dice.normal(*picture.shape) * strength
