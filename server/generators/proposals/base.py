"""What proposes images: anything that can make some from nothing, and others like given ones.

It sees images of its own making and how many votes let them live, never a record: no proposal costs privacy.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from silosynth.common.datasets.records import Labels
from silosynth.common.errors import ConfigError
from silosynth.common.schema import Schema

Pixels = npt.NDArray[np.uint8]
"""Images: (count, height, width, channels)."""


class Proposals(Protocol):
    """Both are told a seed of 31 bits; whoever follows it lets runs be repeated."""

    def fresh(self, labels: Labels, seed: int) -> Pixels:
        """An image for each label, of whatever kind; who knows classes may draw some of that class."""
        ...

    def varied(self, images: Pixels, labels: Labels, strength: float, seed: int) -> Pixels:
        """Another image like each of these: almost the same at strength 0, hardly alike at 1."""
        ...


def require_pictures(schema: Schema, source: str) -> None:
    if schema.shape[2] not in (1, 3):
        raise ConfigError(
            f'proposals of source "{source}" are grey or colour images, these have {schema.shape[2]} channels: choose '
            '"procedural" or "command"'
        )
