"""Scores of a public model.

Released: per class, how many records there are, and how many of them the model takes for that class.
Neighbours: datasets of one silo that differ by one record added or removed.
Sensitivity: sqrt(2) in L2, since a record changes one number of records by one, and one of correct ones by one at most.
Whatever the model says, it names one class: numbers that are none do not change that. What it says of a record does not
depend on who is beside it, to the last bit (`places`).
Event: one Gaussian mechanism.
Reference: methods.md, section 0: numerator and denominator in one Gaussian vector.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from silosynth.client.guard.mechanism import Bench
from silosynth.client.mechanisms.exact_sums import batches
from silosynth.client.mechanisms.public_networks import judged_by
from silosynth.common.datasets.records import Records
from silosynth.common.queries import Scores


def scores(query: Scores, records: Records, bench: Bench) -> npt.NDArray[np.int64]:
    classes, judge = query.schema.classes, judged_by(query, bench)
    correct, present = np.zeros(classes, dtype=np.int64), np.zeros(classes, dtype=np.int64)
    for features, labels in batches(records, query.schema.dimension, bench.report, judge.together):
        right = labels[judge(features).argmax(axis=1) == labels]
        correct += np.bincount(right, minlength=classes)
        present += np.bincount(labels, minlength=classes)
    return np.concatenate([correct, present]) * int(1 / query.grid())
