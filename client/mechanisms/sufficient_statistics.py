"""Sufficient statistics of ridge regression.

Released: the upper triangle of the sum of u u^T over all records, and per class the sum of w * (u, kappa), where
u = clip(x - center) / clip has length at most 1, w is the class weight and kappa counts the records.
Neighbours: datasets of one silo that differ by one record added or removed.
Sensitivity: sqrt(1 + w^2 (1 + kappa^2)) in L2. The triangle of u u^T is no longer than the whole, which is |u|^2 <= 1
long; w * (u, kappa) is added to one class only. u is cut to its grid towards zero, w and kappa are powers of two, so
the products are integers on the square of that grid.
Event: one Gaussian mechanism.
Reference: Wang, "Revisiting differentially private linear regression" (perturbed sufficient statistics); counts beside
sums in one Gaussian vector: methods.md, section 0.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from silosynth.client.guard.entropy import Entropy
from silosynth.client.guard.mechanism import Report
from silosynth.client.mechanisms.exact_sums import batches, clipped, grouped_sums
from silosynth.common.datasets.records import Records
from silosynth.common.queries import SufficientStatistics
from silosynth.common.queries.sufficient_statistics import FEATURE_GRID

Integers = npt.NDArray[np.int64]

_LARGEST_PRODUCT = 1 << 20


def sufficient_statistics(query: SufficientStatistics, records: Records, entropy: Entropy, report: Report) -> Integers:
    classes, dimension = query.schema.classes, query.schema.dimension
    moments = np.zeros(dimension * (dimension + 1) // 2, dtype=np.int64)
    sums = np.zeros((classes, dimension), dtype=np.int64)
    counts = np.zeros(classes, dtype=np.int64)
    for features, labels in batches(records, dimension, report):
        units = clipped(features, query.center, query.clip, query.clip * FEATURE_GRID)
        _add_moments(moments, units)
        sums += grouped_sums(labels, np.arange(len(labels)), units, classes)
        counts += np.bincount(labels, minlength=classes)
    unit_step = int(query.class_weight / FEATURE_GRID)
    count_step = int(query.class_weight * query.count_weight / query.grid())
    return np.concatenate([moments, sums.reshape(-1) * unit_step, counts * count_step])


def _add_moments(moments: Integers, units: Integers) -> None:
    """Add the upper triangle of U^T U, row by row, in blocks of rows to bound memory.

    Double precision is exact here: |u| <= 2^14 steps and at most 2^12 records keep every partial sum below 2^40.
    """
    exact = units.astype(np.float64)
    dimension, stop = units.shape[1], 0
    block = max(_LARGEST_PRODUCT // dimension, 1)
    for row in range(0, dimension, block):
        product = exact[:, row : row + block].T @ exact[:, row:]
        triangle = product[np.triu(np.ones(product.shape, dtype=np.bool_))]
        start, stop = stop, stop + len(triangle)
        moments[start:stop] += triangle.astype(np.int64)
