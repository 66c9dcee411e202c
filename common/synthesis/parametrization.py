"""What the optimizer moves: pixels, or a pyramid whose coarse levels move many pixels together.

Images matched to a network's statistics pixel by pixel take on patterns that only this network sees. In a pyramid the
same step of the optimizer moves low frequencies further than high ones, as they are stronger in pictures.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from silosynth.common.synthesis.resampling import resampled, weights

SMALLEST_SIDE = 2


def pyramid(images: Tensor, levels: int) -> list[Tensor]:
    """Coarse to fine, each level twice as fine as the one before; `image_of` gives the same images again."""
    height, width = images.shape[2:]
    parts, rest = list[Tensor](), images
    for level in reversed(range(1, levels)):
        part = F.interpolate(rest, size=(_side(height, level), _side(width, level)), mode="area")
        rest = rest - _enlarged(part, height, width)
        parts.append(part)
    return [part * levels for part in (*parts, rest)]


def image_of(levels: Sequence[Tensor]) -> Tensor:
    """The mean of the enlarged levels: where all move together the image moves as far as each of them."""
    *coarse, fine = levels
    height, width = fine.shape[2:]
    total = fine
    for level in coarse:
        total = total + _enlarged(level, height, width)
    return total / len(levels)


def _side(side: int, level: int) -> int:
    return max(SMALLEST_SIDE, side >> level)


def _enlarged(part: Tensor, height: int, width: int) -> Tensor:
    whole, centre = torch.ones((), device=part.device), torch.zeros((), device=part.device)
    rows = weights(part.shape[2], height, whole, centre)
    columns = weights(part.shape[3], width, whole, centre)
    return resampled(part, rows, columns)
