"""Figures on a ground: solids cut from half-planes, closed curves, symmetric silhouettes, strokes.

Points lie in [-1, 1]^2; a figure fills most of that square. Each is drawn from a signed distance (negative inside), or
something close to one.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from silosynth.common.procedural.dice import Dice
from silosynth.common.procedural.family import Family, Parameters, soft_step

PIECES, SIDES = 3, 5
HARMONICS = 5
LIMBS = 4
STROKES, SEGMENTS = 3, 5


def solids(dice: Dice, classes: int) -> Family:
    """Two convex polygons joined, a third cut away."""
    slice_of_turn = 2 * math.pi / SIDES
    turns = torch.arange(SIDES) * slice_of_turn + dice.uniform(classes, PIECES, SIDES, high=0.8 * slice_of_turn)
    reach = dice.uniform(classes, PIECES, SIDES, low=0.3, high=0.75)
    reach[:, 2] *= 0.5
    centres = dice.uniform(classes, PIECES, 2, low=-0.35, high=0.35)
    normals = torch.stack((turns.cos(), turns.sin()), -1)
    offsets = reach + (normals * centres[:, :, None]).sum(-1)
    return Family({"normals": normals.flatten(1, 2), "offsets": offsets.flatten(1)}, _draw_solids, is_texture=False)


def _draw_solids(of: Parameters, points: Tensor, dice: Dice) -> Tensor:
    planes = of["normals"] @ points.mT - of["offsets"][..., None]
    first, second, cut = planes.reshape(len(points), PIECES, SIDES, -1).amax(2).unbind(1)
    return soft_step(torch.maximum(torch.minimum(first, second), -cut), points.shape[1])


def curves(dice: Dice, classes: int) -> Family:
    """Closed curves around the centre: the radius is a short Fourier series of the angle."""
    fading = torch.arange(1, HARMONICS + 1) ** -0.7
    waves = dice.normal(classes, HARMONICS) * fading * 0.3
    return Family(
        {"waves": waves, "phases": dice.uniform(classes, HARMONICS, high=2 * math.pi)}, _draw_curves, is_texture=False
    )


def _draw_curves(of: Parameters, points: Tensor, dice: Dice) -> Tensor:
    angle = torch.atan2(points[..., 1], points[..., 0])[:, None]
    harmonics = torch.arange(1, HARMONICS + 1, device=points.device)[:, None]
    series = (of["waves"][..., None] * torch.cos(harmonics * angle + of["phases"][..., None])).sum(1)
    radius = (0.7 + 0.7 * series).clamp(0.15, 1)
    return soft_step(points.norm(dim=-1) - radius, points.shape[1])


def silhouettes(dice: Dice, classes: int) -> Family:
    """Unions of ellipses and boxes, mirrored left to right: what bodies, leaves, vases and garments have in common."""
    turns = dice.uniform(classes, LIMBS, low=-0.5, high=0.5) * math.pi
    turns[:, 0] = 0
    centres = torch.stack(
        (dice.uniform(classes, LIMBS, high=0.6), dice.uniform(classes, LIMBS, low=-0.7, high=0.7)), -1
    )
    centres[:, 0] = 0
    radii = torch.stack(
        (dice.uniform(classes, LIMBS, low=0.1, high=0.35), dice.uniform(classes, LIMBS, low=0.2, high=0.7)), -1
    )
    return Family(
        {"turns": turns, "centres": centres, "radii": radii, "boxes": dice.chance(0.5, classes, LIMBS)},
        _draw_silhouettes,
        is_texture=False,
    )


def _draw_silhouettes(of: Parameters, points: Tensor, dice: Dice) -> Tensor:
    mirrored = torch.stack((points[..., 0].abs(), points[..., 1]), 1)[:, :, None]
    across, along = (mirrored - of["centres"].mT[..., None]).unbind(1)
    cosine, sine = of["turns"].cos()[..., None], of["turns"].sin()[..., None]
    width, height = of["radii"][..., None].unbind(2)
    u, v = (cosine * across + sine * along) / width, (cosine * along - sine * across) / height
    box = torch.maximum(u.abs(), v.abs())
    reach = torch.where(of["boxes"][..., None], box, torch.hypot(u, v))
    return soft_step(((reach - 1) * width).amin(1), points.shape[1])


def strokes(dice: Dice, classes: int) -> Family:
    """Characters of an unknown script: up to three curved strokes; every writing moves and thickens them."""
    controls = dice.uniform(classes, STROKES, 4, 2, low=-0.85, high=0.85)
    # A stroke that is dropped lies on the first one.
    dropped = torch.arange(STROKES)[:, None, None] > dice.integers(STROKES, classes, 1, 1, 1)
    controls = torch.where(dropped, controls[:, :1], controls)
    path = _bezier(controls).flatten(1, 2)
    low, high = path.amin(1)[:, None, None], path.amax(1)[:, None, None]
    centred = (controls - (low + high) / 2) * (1.7 / (high - low).amax(-1, keepdim=True))
    return Family({"controls": centred}, _draw_strokes, is_texture=False)


def _draw_strokes(of: Parameters, points: Tensor, dice: Dice) -> Tensor:
    controls = of["controls"] + 0.06 * dice.normal(*of["controls"].shape)
    path = _bezier(controls)
    starts, ends = path[:, :, :-1].flatten(1, 2), path[:, :, 1:].flatten(1, 2)
    thickness = dice.uniform(len(points), 1, low=0.04, high=0.17)
    return soft_step(_distance_to_segments(points, starts, ends) - thickness, points.shape[1])


def _bezier(controls: Tensor) -> Tensor:
    """Cubic curves at SEGMENTS + 1 places: (..., 4, 2) to (..., SEGMENTS + 1, 2)."""
    t = torch.linspace(0, 1, SEGMENTS + 1, device=controls.device)[:, None]
    weights = torch.cat(((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3), 1)
    return weights @ controls


def _distance_to_segments(points: Tensor, starts: Tensor, ends: Tensor) -> Tensor:
    """To the nearest of all segments. Expanded into matrix products: no (segments, pixels, 2) tensors."""
    along = ends - starts
    length = along.square().sum(-1, keepdim=True).clamp_min(1e-6)
    projection = along @ points.mT - (along * starts).sum(-1, keepdim=True)
    squares = points.square().sum(-1)[:, None] - 2 * starts @ points.mT + starts.square().sum(-1, keepdim=True)
    place = (projection / length).clamp(0, 1)
    return (squares - place * (2 * projection - place * length)).amin(1).clamp_min(0).sqrt()
