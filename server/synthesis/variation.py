"""Variation: records that differ, from class means that do not. Post-processing, free of privacy cost.

A mean is no typical record of its class, and a network trained on means alone learns less than they tell. So each
record gets a smooth random pattern, at the frequencies at which the classes differ from each other. It is stronger
where a mean value is undecided: a value of mean m in [-1, 1] has a standard deviation of at most sqrt(1 - m^2), so
what is black in all records of a class stays black.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from silosynth.common.schema import Schema
from silosynth.server.synthesis.frequencies import band_means, from_frequencies, to_frequencies

Array = npt.NDArray[np.float64]

_STRENGTH = 0.25  # of the largest possible deviation; chosen on the training parts of MNIST and Fashion-MNIST


def vary(records: Array, schema: Schema, seed: int) -> Array:
    """`records` (per class, classes, dimension) in [-1, 1]. The seed is public: this randomness protects nothing."""
    means = records.mean(axis=0)
    energy = np.square(to_frequencies(means - means.mean(axis=0), schema)).mean(axis=0)
    spectrum = band_means(energy / max(energy.mean(), np.finfo(np.float64).tiny), schema)
    draws = np.random.default_rng(seed).standard_normal(records.shape)
    patterns = from_frequencies(draws * np.sqrt(spectrum), schema)
    varied = records + _STRENGTH * np.sqrt(1 - np.square(records)) * patterns
    return np.asarray(np.clip(varied, -1, 1))
