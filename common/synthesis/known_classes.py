"""Which classes there are records of, as far as noisy counts tell."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from silosynth.common.errors import QueryError
from silosynth.common.queries import Moments, Query, SufficientStatistics

LARGEST_NOISE = 2.0  # standard deviations: a class that shows no more records than noise may feign is not known


@dataclass(frozen=True)
class NoisyCounts:
    """Records of each class, and the standard deviation of these numbers."""

    counts: npt.NDArray[np.float64]
    noise: float

    @classmethod
    def of(cls, query: Query, counts: npt.NDArray[np.float64], noise_std: float) -> NoisyCounts:
        """From the block of counts in an answer, and the noise of its values."""
        if isinstance(query, Moments):
            one_record = query.count_step() * query.grid()
        elif isinstance(query, SufficientStatistics):
            one_record = query.class_weight * query.count_weight
        else:
            raise QueryError(f"{query.mechanism} does not tell which classes have records")
        return cls(counts / one_record, noise_std / one_record)


def known_classes(shown: Sequence[NoisyCounts]) -> npt.NDArray[np.bool_]:
    """From the mean of independent noisy counts: true for a class that has more records than noise may feign."""
    mean = np.mean([answer.counts for answer in shown], axis=0)
    noise = math.hypot(*(answer.noise for answer in shown)) / len(shown)
    return np.asarray(mean > max(LARGEST_NOISE * noise, 0.5))
