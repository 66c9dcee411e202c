"""What the mechanisms share: batches with progress, clipping to an integer grid, exact sums.

Everything is summed in integers, so a sum depends neither on the order of the records nor on how they are batched.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from silosynth.client.guard.mechanism import Report
from silosynth.common.datasets.records import Features, Labels, Records

Integers = npt.NDArray[np.int64]

_LARGEST_BATCH = 4096
_LARGEST_BATCH_VALUES = 1 << 20
_PROGRESS_STEPS = 20


def batches(
    records: Records, values_per_record: int, report: Report, multiple: int = 1
) -> Iterator[tuple[Features, Labels]]:
    """The records in batches of bounded memory and of a multiple of so many, with progress.

    Every multiple of 5 % is reported, also those a batch leaps over: which steps are seen, and how many, must not
    tell how many records there are.
    """
    size = min(max(_LARGEST_BATCH_VALUES // values_per_record, 1), _LARGEST_BATCH)
    size = max(size // multiple, 1) * multiple
    done = 0
    for features, labels in records.batches(size):
        yield features, labels
        done += len(labels)
        report_steps(report, done - len(labels), done, len(records))
    if not len(records):
        report_steps(report, 0, 1, 1)


def report_steps(report: Report, before: int, done: int, total: int) -> None:
    """Report every multiple of 5 % that work on `total` things passed between `before` and `done`."""
    for step in range(before * _PROGRESS_STEPS // total + 1, done * _PROGRESS_STEPS // total + 1):
        report(step / _PROGRESS_STEPS)


def clipped(features: npt.NDArray[np.floating[Any]], center: float, clip: float, grid: float) -> Integers:
    """clip(x - center) of each record, in steps of `grid`: integer vectors of length at most clip / grid, exactly.

    Values are cut towards zero, which never lengthens a vector; the bound gives way by what rounding errors of
    `dimension` additions may amount to.
    """
    vectors = features.astype(np.float64)
    vectors -= center
    bound = clip * (1 - (features.shape[1] + 16) * 2.0**-52)
    norms = np.sqrt(np.einsum("nd,nd->n", vectors, vectors))
    vectors *= (bound / np.maximum(norms, bound) / grid)[:, None]
    return np.asarray(np.trunc(vectors, out=vectors), dtype=np.int64)


def grouped_sums(groups: Integers, members: Integers, values: Integers, count: int) -> Integers:
    """Row g of the result is the sum of `values[members[i]]` over all i with `groups[i] == g`; `count` rows."""
    ones = np.ones(len(groups), dtype=np.int64)
    selection = csr_array((ones, (groups, members)), shape=(count, len(values)))
    return np.asarray(selection @ values, dtype=np.int64)
