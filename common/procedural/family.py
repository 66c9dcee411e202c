"""What a family of procedural classes is: parameters that make a class, and how an image of it is drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from silosynth.common.procedural.dice import Dice

Parameters = dict[str, Tensor]
"""Whatever a family's renderer needs; the first axis counts classes, or images once classes were drawn."""

Renderer = Callable[[Parameters, Tensor, Dice], Tensor]
"""(parameters, points of shape (images, pixels, 2), dice) to values in [0, 1] of shape (images, pixels)."""


@dataclass(frozen=True)
class Family:
    parameters: Parameters
    render: Renderer
    is_texture: bool
    """Fills the frame; otherwise it is a figure on a ground."""

    @property
    def classes(self) -> int:
        return len(next(iter(self.parameters.values())))

    def draw(self, classes: Tensor, points: Tensor, dice: Dice) -> Tensor:
        chosen = {name: values.to(classes.device)[classes] for name, values in self.parameters.items()}
        return self.render(chosen, points, dice)


def soft_step(distance: Tensor, pixels: int) -> Tensor:
    """1 inside (negative distance), 0 outside, smooth over about a pixel so that edges do not alias."""
    side = pixels**0.5
    return torch.sigmoid(distance * (-1.5 * side))
