"""Inputs that teachers are asked about before the generator has learned anything: public, from a seed.

Images are drawn by procedure. For rows of a table there is no such world: they are spread over the whole range.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from silosynth.common.auxiliary import as_inputs
from silosynth.common.procedural import procedural_batches
from silosynth.common.procedural.dice import Dice
from silosynth.common.schema import Schema

_SMALLEST_PAINTED_SIDE = 8
_STREAM = 0xFED


def public_inputs(schema: Schema, count: int, seed: int, number: int) -> Tensor:
    """The so-many-th batch, as networks take them."""
    if not schema.is_image or count == 0:
        rows = Dice(seed, _STREAM, number).uniform(count, schema.dimension, low=-1.0, high=1.0)
        return as_inputs(rows.numpy(), schema)
    height, width, channels = schema.shape
    side = max(height, width, _SMALLEST_PAINTED_SIDE)
    painted = channels if channels in (1, 3) else 1
    images, _ = next(procedural_batches(seed + _STREAM, count, painted, side, start=number))
    resized = F.interpolate(images, (height, width), mode="bilinear", antialias=True)
    return torch.as_tensor(resized).expand(-1, channels, -1, -1).contiguous()
