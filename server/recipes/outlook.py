"""What a run would ask of each silo, and how much of the answers would be noise: from public numbers alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from silosynth.common.queries import Query


@dataclass(frozen=True)
class Crowd:
    """How many records there are, as somebody guesses in public: never counted."""

    silos: int
    records: int  # of each silo, all classes together


@dataclass(frozen=True)
class Outlook:
    queries: Sequence[Query]
    """What each silo would be asked; where a query names a file that is yet to be made, any name will do."""
    noise_to_signal: float
    """The length of the noise in what is learned of a class, over the longest that it can be after clipping."""
    bearable: float
    """The noise to signal at which the recipe loses half of what it learns without noise, as measured."""
    silo_views: int = 0
    """How often a silo looks at a record through a network."""
    server_views: int = 0
    """How often the server looks at a synthetic record through a network, and back for its gradient."""
    records_help: bool = True
    """Whether the noise falls with the number of records."""

    @property
    def strain(self) -> float:
        """1 where the noise is just bearable."""
        return self.noise_to_signal / self.bearable


def noise_of_class_means(
    query: Query, crowd: Crowd, *, dimension: int, bound: float, rate: float = 1.0, repeats: int = 1
) -> float:
    """Of a class of average size whose records each add a vector of `dimension` values, not longer than `bound`.

    Of `repeats` sums with noise of their own, each over a share `rate` of the records, the average counts.
    """
    noise = query.plan().noise_std * math.sqrt(crowd.silos * dimension / repeats)
    records_of_a_class = crowd.silos * crowd.records / query.schema.classes
    return noise / (rate * records_of_a_class * bound)


def bearable_when_denoised(query: Query) -> float:
    """For class means of raw records freed of noise by frequency: the smoother a record can be, the more it bears.

    Measured: 1.5 for images of 8x8 (digits), 3.5 for 28x28 (Fashion-MNIST). Of rows nothing is smooth.
    """
    return 0.54 * query.schema.dimension**0.25 if query.schema.is_image else 1.0
