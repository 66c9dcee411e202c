"""Sufficient statistics of linear models (ridge regression, spatial SPS and SPS+).

Released: the upper triangle of the sum of u u^T over all records, and per class the sum of w * (u, kappa), where
u = clip(f(x) - center) / clip has length at most 1, w is the class weight and kappa counts the records. f(x) is the
record or its features seen through a public network; the centre may be a public one for each class.
Neighbours: datasets of one silo that differ by one record added or removed.
Sensitivity: sqrt(1 + w^2 (1 + kappa^2)) in L2, without the 1 if only sums are asked for. The triangle of u u^T is no
longer than the whole, which is |u|^2 <= 1 long; w * (u, kappa) is added to one class only. u is cut to its grid towards
zero, w and kappa are powers of two, so the products are integers on the square of that grid, summed exactly.
What a network sees of a record does not depend on who is beside it, to the last bit (`places`).
Event: one Gaussian mechanism.
Reference: Wang, "Revisiting differentially private linear regression" (perturbed sufficient statistics); counts beside
sums in one Gaussian vector: methods.md, section 0; centres of an earlier stage: SPS+.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from silosynth.client.guard.mechanism import Bench
from silosynth.client.mechanisms.exact_sums import batches, clipped, grouped_sums
from silosynth.client.mechanisms.public_networks import Look, seen_through
from silosynth.common.datasets.records import Features, Labels, Records
from silosynth.common.queries import SufficientStatistics
from silosynth.common.queries.sufficient_statistics import FEATURE_GRID
from silosynth.common.statistics.centers import decode_centers

Integers = npt.NDArray[np.int64]

_BLOCK_ROWS = 128  # small blocks of a triangle leave out most of the other half


def sufficient_statistics(query: SufficientStatistics, records: Records, bench: Bench) -> Integers:
    classes, dimension = query.schema.classes, query.dimension
    look = seen_through(query, bench) if query.backbone else None
    units = _units(query, bench, look)
    moments = np.zeros(query.layout().blocks[0][1], dtype=np.int64)
    sums = np.zeros((classes, dimension), dtype=np.int64)
    counts = np.zeros(classes, dtype=np.int64)
    together = look.together if look else 1
    for features, labels in batches(records, max(dimension, query.schema.dimension), bench.report, together):
        vectors = units(features, labels)
        if not query.sums_only:
            _add_moments(moments, vectors)
        sums += grouped_sums(labels, np.arange(len(labels)), vectors, classes)
        counts += np.bincount(labels, minlength=classes)
    unit_step = int(query.class_weight / FEATURE_GRID)
    count_step = int(query.class_weight * query.count_weight / query.grid())
    return np.concatenate([moments, sums.reshape(-1) * unit_step, counts * count_step])


def _units(query: SufficientStatistics, bench: Bench, look: Look | None) -> Callable[[Features, Labels], Integers]:
    """From a batch to its u, in steps of the grid."""
    centers = decode_centers(bench.artifact(query.centers), query) if query.centers else None

    def units(features: Features, labels: Labels) -> Integers:
        seen = (features if look is None else look(features)).astype(np.float64)
        if centers is not None:
            seen -= centers[labels]
        return clipped(seen, query.center, query.clip, query.clip * FEATURE_GRID)

    return units


def _add_moments(moments: Integers, units: Integers) -> None:
    """Add the upper triangle of U^T U, row by row, in blocks of rows to bound memory.

    Double precision is exact here: |u| <= 2^14 steps and at most 2^12 records keep every partial sum below 2^40.
    """
    exact = units.astype(np.float64)
    dimension, stop = units.shape[1], 0
    for row in range(0, dimension, _BLOCK_ROWS):
        product = exact[:, row : row + _BLOCK_ROWS].T @ exact[:, row:]
        triangle = product[np.triu(np.ones(product.shape, dtype=np.bool_))]
        start, stop = stop, stop + len(triangle)
        moments[start:stop] += triangle.astype(np.int64)
