"""Denoising: empirical-Bayes shrinkage of statistics whose noise is known. Post-processing, free of privacy cost.

The silos' noise is white with a publicly known variance, while images live at low frequencies. So every frequency band
is shrunk by the share of its observed energy that noise does not explain (a Wiener filter that learns its spectrum).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from silosynth.common.schema import Schema
from silosynth.server.synthesis.frequencies import band_means, from_frequencies, to_frequencies

Array = npt.NDArray[np.float64]

_SMALLEST_VARIANCE = 1e-12  # stands in for the noise of an infinite budget


def denoised_counts(counts: Array, noise_variance: float) -> Array:
    """Noisy class sizes, drawn to their mean as far as noise explains their differences; at least 1.

    A wrong size spoils its whole class mean. Unless the data say otherwise, classes are taken to be of equal size.
    """
    mean = counts.mean()
    observed = counts.var(ddof=1) if len(counts) > 1 else 0.0
    signal = max(observed - noise_variance, 0.0)
    share = signal / max(signal + noise_variance, _SMALLEST_VARIANCE)
    return np.asarray(np.maximum(mean + share * (counts - mean), 1.0))


def denoised_means(sums: Array, counts: Array, noise_variance: float, schema: Schema) -> Array:
    """Class means (classes, dimension) from noisy sums: the mean of all classes, plus the shrunk differences from it.

    `counts` are the classes' sizes, at least 1. A class too small for its noise ends up at the mean of all classes.
    """
    grand = sums.sum(axis=0, keepdims=True) / counts.sum()
    differences = sums / counts[:, None] - grand
    grand_noise = np.array([len(counts) * noise_variance / counts.sum() ** 2])
    shrunk_differences = shrunk(differences, noise_variance / counts**2, schema, freedom=1 - 1 / len(counts))
    return shrunk(grand, grand_noise, schema) + shrunk_differences


def shrunk(rows: Array, noise_variances: Array, schema: Schema, freedom: float = 1.0) -> Array:
    """Posterior means of zero-mean `rows`, each of which carries white noise of the variance given for it.

    `freedom` is below 1 for differences from the rows' own mean, which vary a little less than their noise.
    """
    noise = np.maximum(noise_variances, _SMALLEST_VARIANCE)
    coefficients = to_frequencies(rows, schema)
    precision = 1 / noise
    energy = band_means(precision @ coefficients**2 / precision.sum(), schema)
    signal = np.maximum(energy - freedom * len(rows) / precision.sum(), 0.0)
    return from_frequencies(coefficients * signal / (signal + noise[:, None]), schema)
