"""Fractals of iterated function systems: a few contracting maps, played at random, leave a class's attractor."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from silosynth.common.procedural.dice import Dice
from silosynth.common.procedural.family import Family, Parameters

MAPS = 4
CHAINS, STEPS, WARM_UP = 96, 22, 6


def fractals(dice: Dice, classes: int) -> Family:
    turns = dice.uniform(classes, MAPS, high=2 * math.pi)
    contraction = dice.uniform(classes, MAPS, 2, low=0.25, high=0.75)
    rotation = torch.stack((turns.cos(), -turns.sin(), turns.sin(), turns.cos()), -1).reshape(classes, MAPS, 2, 2)
    linear = rotation * contraction[:, :, None]
    shifts = dice.uniform(classes, MAPS, 2, low=-0.8, high=0.8)
    raw: Parameters = {"linear": linear, "shifts": shifts}
    orbit = _play(raw, dice, chains=512)
    centre, spread = orbit.mean(1, keepdim=True), orbit.std(1, keepdim=True).clamp_min(1e-3)
    return Family(raw | {"centre": centre, "spread": spread}, _draw_fractals, is_texture=False)


def _play(of: Parameters, dice: Dice, chains: int) -> Tensor:
    """Points of the attractor: (images, chains * kept steps, 2)."""
    images = len(of["linear"])
    place = torch.zeros(images, chains, 2, device=of["linear"].device)
    row = torch.arange(images, device=place.device)[:, None]
    kept = []
    for step in range(STEPS):
        chosen = dice.integers(MAPS, images, chains)
        place = (of["linear"][row, chosen] * place[..., None, :]).sum(-1) + of["shifts"][row, chosen]
        if step >= WARM_UP:
            kept.append(place)
    return torch.cat(kept, 1)


def _draw_fractals(of: Parameters, points: Tensor, dice: Dice) -> Tensor:
    """The orbit's points are counted in the pixels they fall into, on a logarithmic scale.

    `points` ask for values at places; an orbit offers places. So the orbit is drawn upright into a frame, which is then
    looked up at the points.
    """
    side = math.isqrt(points.shape[1])
    orbit = (_play(of, dice, CHAINS) - of["centre"]) / of["spread"] * 0.45
    pixels = ((orbit + 1) * (side / 2)).long()
    inside = ((pixels >= 0) & (pixels < side)).all(-1)
    index = (pixels[..., 1] * side + pixels[..., 0]).clamp(0, side * side - 1)
    counts = torch.zeros(len(points), side * side, device=points.device).scatter_add(1, index, inside.float())
    density = (counts / counts.amax(1, keepdim=True).clamp_min(1) * 20).log1p() / math.log(21)
    frame = density.reshape(-1, 1, side, side)
    looked_up = torch.nn.functional.grid_sample(
        frame, points.reshape(-1, side, side, 2), padding_mode="zeros", align_corners=False
    )
    return looked_up.reshape(len(points), -1)
