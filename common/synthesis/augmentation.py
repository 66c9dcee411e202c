"""Random resized crops and flips: images must show what they show from wherever one looks. Differentiable, batched."""

from __future__ import annotations

import math

from torch import Tensor

from silosynth.common.procedural.dice import Dice
from silosynth.common.synthesis.resampling import resampled, weights

LONGEST_ASPECT = 4 / 3


def augmented(images: Tensor, smallest_crop: float, flips: bool, dice: Dice) -> Tensor:
    """Each image by its own draw: a window of `smallest_crop` to all of its area, enlarged to its size again."""
    count, _, height, width = images.shape
    area = dice.uniform(count, low=smallest_crop)
    longest = math.log(LONGEST_ASPECT)
    aspect = dice.uniform(count, low=-longest, high=longest).exp().sqrt()
    # A window that would be wider or higher than the image is as wide or high as the image.
    across, down = (area.sqrt() * aspect).clamp(max=1), (area.sqrt() / aspect).clamp(max=1)
    places = dice.uniform(2, count, low=-1)
    directions = 1 - 2 * dice.chance(0.5 if flips else 0.0, count).float()
    rows = weights(height, height, down, places[0] * (1 - down))
    columns = weights(width, width, across * directions, places[1] * (1 - across))
    return resampled(images, rows, columns)
