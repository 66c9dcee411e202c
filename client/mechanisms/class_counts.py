"""Class counts.

Released: the number of records of each class.
Neighbours: datasets of one silo that differ by one record added or removed.
Sensitivity: 1 in L2, since a record changes one count by one.
Event: one Gaussian mechanism.
Reference: methods.md, section 0: under add/remove adjacency counts are private unless a silo declares them public.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from silosynth.client.guard.mechanism import Bench
from silosynth.client.mechanisms.exact_sums import batches
from silosynth.common.datasets.records import Records
from silosynth.common.queries import ClassCounts


def class_counts(query: ClassCounts, records: Records, bench: Bench) -> npt.NDArray[np.int64]:
    counts = np.zeros(query.schema.classes, dtype=np.int64)
    for _, labels in batches(records, query.schema.dimension, bench.report):
        counts += np.bincount(labels, minlength=query.schema.classes)
    return counts * int(1 / query.grid())
