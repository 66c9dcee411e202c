"""Votes for candidate images (Private Evolution).

Released: for every class and each of the server's candidates for it, how many records of the class are nearer to that
candidate than to any other of the class, in the features of a public network.
Neighbours: datasets of one silo that differ by one record added or removed.
Sensitivity: 1 in L2, since a record has one vote; by the paper's relation, one record replaced by another, a vote goes
from one candidate to another: sqrt(2). Candidates and network may be anything: features that are no numbers become 0,
and the nearest of equally near ones is the first. This takes a record's vote to be its own. What the network sees of it
does not depend on who is beside it (`places`); distances are compared in integers, exactly: candidates that lie
together would let rounding errors decide.
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
from silosynth.client.mechanisms.public_networks import seen_through
from silosynth.common.auxiliary import decode_records
from silosynth.common.datasets.records import Features, Records
from silosynth.common.queries import Votes

_STEPS = 2.0**24  # of features no longer than 1: products and their sums stay below 2^50, exact in double precision


def votes(query: Votes, records: Records, bench: Bench) -> npt.NDArray[np.int64]:
    look, classes = seen_through(query, bench), query.schema.classes
    images = decode_records(bench.artifact(query.candidates), query.schema, "candidates", query.images, query.images)
    candidates = _in_steps(look(images).reshape(-1, query.views, query.features).mean(axis=1))
    lengths, counts = np.square(candidates).sum(axis=1), np.zeros(len(candidates), dtype=np.int64)
    for features, labels in batches(records, max(query.schema.dimension, len(counts)), bench.report, look.together):
        distances = (lengths - 2 * _in_steps(look(features)) @ candidates.T).reshape(-1, classes, query.per_class)
        nearest = distances[np.arange(len(labels)), labels].argmin(axis=1)
        counts += np.bincount(labels * query.per_class + nearest, minlength=len(counts))
    return counts * int(1 / query.grid())


def _in_steps(features: Features) -> npt.NDArray[np.float64]:
    return np.rint(features.astype(np.float64) * _STEPS)
