"""Variation: records scattered around class means, for a model to learn from. Post-processing, free of privacy cost.

A mean is no typical record of its class, and a network trained on means alone learns less than they tell. So records
are drawn around them, independently at each frequency.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from silosynth.common.schema import Schema
from silosynth.server.synthesis.frequencies import band_means, from_frequencies, to_frequencies

Array = npt.NDArray[np.float64]


def assumed_variances(means: Array, length: float, schema: Schema) -> Array:
    """Of every coefficient within a class, where only class means (about the centre of clipping) are known.

    Two public guesses: records differ within a class at the frequencies at which classes differ from each other, and
    have the clipped `length`, which fixes by how much.
    """
    between = band_means(np.square(to_frequencies(means - means.mean(axis=0), schema)).mean(axis=0), schema)
    missing = max(length**2 - np.square(means).sum(axis=1).mean(), 0.0)
    return np.asarray(between * missing / max(between.sum(), np.finfo(np.float64).tiny))


def measured_variances(scatter: Array, schema: Schema) -> Array:
    """Of every coefficient, from the noisy covariance (dimension, dimension) within classes."""
    by_frequency = to_frequencies(to_frequencies(scatter, schema).T, schema)
    return np.maximum(band_means(np.diagonal(by_frequency), schema), 0.0)


def vary(rows: Array, variances: Array, schema: Schema, seed: int) -> Array:
    """Every row plus a draw of its own. The seed is public: this randomness protects nothing."""
    draws = np.random.default_rng(seed).standard_normal(rows.shape)
    return rows + from_frequencies(draws * np.sqrt(variances), schema)
