"""How recipes bound a record: public guesses that all of them share."""

from __future__ import annotations

import math

from pydantic import Field

from silosynth.common.config import Choices
from silosynth.common.schema import Schema


class Clipping(Choices):
    """A record's difference from `center` is cut to the length `clip` * sqrt(dimension).

    Images: most are darker than mid-grey (mean values in [-1, 1]: MNIST -0.74, Fashion-MNIST -0.43, CIFAR-10 -0.05,
    chest X-rays 0.14), and differ from a grey by 0.5 a pixel or more. So nearly all of them are cut to the same length;
    that costs contrast, which can be restored, and saves noise. Tables: a value's size has a meaning, so none are cut.
    """

    center: float | None = Field(None, ge=-1, le=1, description="default: -0.25 for images, 0 for tables")
    clip: float | None = Field(None, gt=0, le=2, description="default: 0.5 for images, 1 for tables")

    def bounds(self, schema: Schema) -> tuple[float, float]:
        """The centre, and the largest length of a record about it."""
        center, clip = (-0.25, 0.5) if schema.is_image else (0.0, 1.0)
        center = center if self.center is None else self.center
        clip = clip if self.clip is None else self.clip
        return center, clip * math.sqrt(schema.dimension)
