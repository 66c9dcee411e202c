"""Textures that fill the frame: waves and lattices, spirals and rings, noise with natural spectra, Voronoi cells."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from silosynth.common.procedural.dice import Dice
from silosynth.common.procedural.family import Family, Parameters

WAVES = 3
SITES = 36


def waves(dice: Dice, classes: int) -> Family:
    """Sums of one to three plane waves, soft or hard: gratings, checkers, dots, hexagons."""
    count = dice.integers(WAVES, classes) + 1
    turns = dice.uniform(classes, 1, high=math.pi) + torch.arange(WAVES) * (math.pi / count)[:, None]
    frequency = dice.uniform(classes, 1, 1, low=0.8, high=3.5) * 2 * math.pi
    used = (torch.arange(WAVES) < count[:, None]).float()
    return Family(
        {
            "vectors": torch.stack((turns.cos(), turns.sin()), -1) * frequency,
            "weights": used / used.sum(1, keepdim=True),
            "sharpness": 2 ** dice.uniform(classes, 1, low=1, high=4),
        },
        _draw_waves,
        is_texture=True,
    )


def _draw_waves(of: Parameters, points: Tensor, dice: Dice) -> Tensor:
    field = (torch.cos(of["vectors"] @ points.mT) * of["weights"][..., None]).sum(1)
    return torch.sigmoid(field * of["sharpness"])


def spirals(dice: Dice, classes: int) -> Family:
    """Rings, sectors and spirals around a centre."""
    return Family(
        {
            "arms": dice.integers(7, classes, 1).float(),
            "rings": dice.uniform(classes, 1, low=1.0, high=4.0) * 2 * math.pi,
            "sharpness": 2 ** dice.uniform(classes, 1, low=1, high=4),
        },
        _draw_spirals,
        is_texture=True,
    )


def _draw_spirals(of: Parameters, points: Tensor, dice: Dice) -> Tensor:
    centred = points + dice.uniform(len(points), 1, 2, low=-0.4, high=0.4)
    angle = torch.atan2(centred[..., 1], centred[..., 0])
    phase = dice.uniform(len(points), 1, high=2 * math.pi)
    field = torch.cos(of["arms"] * angle + of["rings"] * centred.norm(dim=-1) + phase)
    return torch.sigmoid(field * of["sharpness"])


def noises(dice: Dice, classes: int) -> Family:
    """Random fields whose power falls as frequency^-exponent, stretched one way, plain or folded into veins."""
    return Family(
        {
            "exponent": dice.uniform(classes, 1, 1, low=0.3, high=2.0),
            "turn": dice.uniform(classes, 1, 1, high=math.pi),
            "stretch": 2 ** dice.uniform(classes, 1, 1, low=0, high=2),
            "sharpness": 2 ** dice.uniform(classes, 1, low=0, high=3),
            "folded": dice.chance(0.4, classes, 1),
        },
        _draw_noises,
        is_texture=True,
    )


def _draw_noises(of: Parameters, points: Tensor, dice: Dice) -> Tensor:
    side = math.isqrt(points.shape[1])
    y = torch.fft.fftfreq(side, device=points.device)[:, None] * side
    x = torch.fft.rfftfreq(side, device=points.device) * side
    u = (of["turn"].cos() * x + of["turn"].sin() * y) * of["stretch"]
    v = of["turn"].cos() * y - of["turn"].sin() * x
    spectrum = torch.fft.rfft2(dice.normal(len(points), side, side)) * (0.5 + torch.hypot(u, v)) ** -of["exponent"]
    spectrum[:, 0, 0] = 0
    field = torch.fft.irfft2(spectrum, s=(side, side)).flatten(1)
    field = field / field.std(1, keepdim=True).clamp_min(1e-6)
    folded = 1 - 2 * field.abs()
    return torch.sigmoid(torch.where(of["folded"], folded, field) * of["sharpness"])


def cells(dice: Dice, classes: int) -> Family:
    """Voronoi cells of random sites: plain tiles, walls between them, or cones around the sites."""
    return Family(
        {
            "sites": (10 ** dice.uniform(classes, 1, low=0.6, high=math.log10(SITES))).long(),
            "style": dice.integers(3, classes, 1),
        },
        _draw_cells,
        is_texture=True,
    )


def _draw_cells(of: Parameters, points: Tensor, dice: Dice) -> Tensor:
    sites = dice.uniform(len(points), SITES, 2, low=-1.3, high=1.3)
    unused = torch.arange(SITES, device=points.device) >= of["sites"]
    # |point - site|^2 without |point|^2, which is the same for all sites.
    distances = torch.baddbmm(sites.square().sum(-1, keepdim=True), sites, points.mT, alpha=-2)
    distances.masked_fill_(unused[..., None], torch.inf)
    nearest, owner = distances.min(1, keepdim=True)
    second = distances.scatter_(1, owner, torch.inf).amin(1)
    spacing = 2.6 / of["sites"].float().sqrt()
    tiles = dice.uniform(len(points), SITES).gather(1, owner[:, 0])
    walls = ((second - nearest[:, 0]) / spacing.square() * 2).clamp(0, 1)
    cones = ((nearest[:, 0] + points.square().sum(-1)).clamp_min(0).sqrt() / spacing * 1.5).clamp(0, 1)
    return torch.where(of["style"] == 0, tiles, torch.where(of["style"] == 1, walls, cones))
