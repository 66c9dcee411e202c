"""Inputs that teachers are asked about before the generator has learned anything: public, from a seed.

Images are drawn by procedure. For rows of a table there is no such world: they are spread over the whole range.
"""

from __future__ import annotations

from torch import Tensor

from silosynth.common.auxiliary import as_inputs, procedural_images
from silosynth.common.procedural.dice import Dice
from silosynth.common.schema import Schema

_STREAM = 0xFED


def public_inputs(schema: Schema, count: int, seed: int, number: int) -> Tensor:
    """The so-many-th batch, as networks take them."""
    if schema.is_image and count:
        return procedural_images(schema, count, seed + _STREAM, number)
    rows = Dice(seed, _STREAM, number).uniform(count, schema.dimension, low=-1.0, high=1.0)
    return as_inputs(rows.numpy(), schema)
