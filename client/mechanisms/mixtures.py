"""Mixtures (LDPDC; with one mixture at rate 1: class sums).

Released: for each of M mixtures and each class, the sum of (clip(x - center), kappa) over a fresh Poisson sample of
the records of that class; kappa, the last coordinate, counts the sample.
Neighbours: datasets of one silo that differ by one record added or removed.
Sensitivity: sqrt(clip^2 + kappa^2) in L2 for one mixture: a record has one class, so it adds to one row, a vector no
longer than clip and beside it kappa. Both are cut to the grid towards zero.
Event: M compositions of the Gaussian mechanism on Poisson samples, since every mixture draws each record by a coin of
its own. Classes hold disjoint records, so they compose in parallel.
Reference: Zheng and Li, "Differentially private dataset condensation"; methods.md, section 2. One public rate for all
classes, and noisy sums with noisy counts in place of a division by private counts: paper-notes.md, error 3.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from silosynth.client.guard.entropy import coin_flips
from silosynth.client.guard.mechanism import Bench
from silosynth.client.mechanisms.exact_sums import batches, clipped, grouped_sums
from silosynth.common.datasets.records import Records
from silosynth.common.queries import Mixtures

Integers = npt.NDArray[np.int64]

_LARGEST_PRODUCT = 1 << 22


def mixtures(query: Mixtures, records: Records, bench: Bench) -> Integers:
    classes, dimension = query.schema.classes, query.schema.dimension
    sums = np.zeros((query.mixtures, classes, dimension), dtype=np.int64)
    counts = np.zeros((query.mixtures, classes), dtype=np.int64)
    for features, labels in batches(records, max(dimension, query.mixtures), bench.report):
        vectors = clipped(features, query.center, query.clip, query.grid())
        drawn = coin_flips(bench.entropy, len(labels) * query.mixtures, query.sampling_probability)
        _add(sums, counts, vectors, labels, drawn.reshape(len(labels), query.mixtures))
    return np.concatenate([sums.reshape(-1), counts.reshape(-1) * query.count_step()])


def _add(sums: Integers, counts: Integers, vectors: Integers, labels: Integers, drawn: npt.NDArray[np.bool_]) -> None:
    """Add a batch of records, by blocks of mixtures to bound memory; `drawn` is records x mixtures."""
    mixtures, classes, dimension = sums.shape
    block = max(_LARGEST_PRODUCT // (classes * dimension), 1)
    for start in range(0, mixtures, block):
        part = sums[start : start + block]
        mixture, member = np.nonzero(drawn[:, start : start + block].T)
        groups = mixture * classes + labels[member]
        part += grouped_sums(groups, member, vectors, len(part) * classes).reshape(part.shape)
        counts[start : start + block] += np.bincount(groups, minlength=len(part) * classes).reshape(-1, classes)
