"""Votes for candidate images (Private Evolution).

Released: for every class and each of the server's candidates for it, how many records of the class are nearer to that
candidate than to any other of the class, in the features of a public network.
Neighbours: datasets of one silo that differ by one record added or removed.
Sensitivity: 1 in L2, since a record has one vote; by the paper's relation, one record replaced by another, a vote goes
from one candidate to another: sqrt(2). Candidates and network may be anything: features that are no numbers become 0,
and the nearest of equally near ones is the first. A network lets no record see another, but the last bit of its
floating point arithmetic may depend on a record's place in a batch. Features and distances are computed in batches of
one size, filled up with blanks, and neighbours are compared place by place, where a removed record leaves a blank:
everybody else votes as before.
Event: one Gaussian mechanism. A run asks as often as its candidates evolve.
Reference: Lin et al., "Differentially private synthetic data via foundation model APIs 1: images"; methods.md,
section 4. There all records vote among the candidates of all classes together or each class is a run of its own: here
classes are asked for at once, on disjoint records.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from silosynth.client.guard.mechanism import Bench
from silosynth.client.mechanisms.exact_sums import batches
from silosynth.client.mechanisms.public_networks import FORWARD_BATCH, distances_from
from silosynth.common.datasets.records import Records
from silosynth.common.queries import Votes


def votes(query: Votes, records: Records, bench: Bench) -> npt.NDArray[np.int64]:
    classes, distances = query.schema.classes, distances_from(query, bench)
    counts = np.zeros(classes * query.per_class, dtype=np.int64)
    values = max(query.schema.dimension, len(counts))
    for features, labels in batches(records, values, bench.report, FORWARD_BATCH):
        of_all = distances(features).reshape(-1, classes, query.per_class)
        nearest = of_all[np.arange(len(labels)), labels].argmin(axis=1)
        counts += np.bincount(labels * query.per_class + nearest, minlength=len(counts))
    return counts * int(1 / query.grid())
