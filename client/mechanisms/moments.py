"""Moments of a public network's activations (SPS, SPS+).

Released: the sum of clip(v - center) over all records, and per class kappa times the number of its records. v holds
mean and second moment of a record's projected and squashed activations, at all layers, and at the last layers again
for every pseudo-class that holds the record's class; see `Moments`.
Neighbours: datasets of one silo that differ by one record added or removed.
Sensitivity: sqrt((bound (1 + slack))^2 + kappa^2) in L2: a record adds one vector no longer than bound, and kappa to
one count. The network lets no record see another, but the last bit of floating point arithmetic may depend on a
record's place in a batch. All batches have one size, filled up with blanks of weight 0, and neighbours are compared
place by place, where a removed record leaves a blank: one batch changes, and in it one record's activations. Its
moments are those of its activations as they were rounded, so errors before that do not count. The slack pays for what
follows, with u = 2^-24, relative to bound:
- Lengths: sums of squares by rows of at most 1024 numbers are off by at most 2 * 1024 u, lengths by half of that, and
  around a centre by 2 u / K more for its rounding, K >= 2^-8 (together below 2^-13). Double precision adds nothing that
  would show.
- Sums of 128 vectors of length bound in single precision, whatever their order: off by 128 (128 + 2) u, in the batch
  with the record and in the one without it, together 2^-8.98.
  Where no matrices are made for each record (`GramMoments`) sums are in double precision. Both are below 2^-8.
- Every batch is rounded to the grid, and batches are summed exactly in integers: each of d coordinates moves by at most
  one step, the vector by sqrt(d) steps, at most 2^-12.
Event: one Gaussian mechanism.
Reference: "Summarize, privatize, synthesize" (SPS); methods.md, section 1; counts in the same vector: section 0.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from silosynth.client.guard.mechanism import Bench
from silosynth.client.mechanisms.exact_sums import report_steps
from silosynth.client.mechanisms.public_networks import public_network
from silosynth.common.datasets.records import Features, Labels, Records
from silosynth.common.queries import Moments
from silosynth.common.queries.moments import LARGEST_BATCH
from silosynth.common.statistics import MomentStatistics, decode_center, flatten

Integers = npt.NDArray[np.int64]

_LARGEST_BATCH_VALUES = 1 << 26  # of all layers together


def moments(query: Moments, records: Records, bench: Bench) -> Integers:
    statistics = _statistics(query, bench)
    sums = np.zeros(query.moments_layout().size, dtype=np.int64)
    counts = np.zeros(query.schema.classes, dtype=np.int64)
    done, size = 0, _batch_size(statistics)
    for features, labels in records.batches(size):
        sums += _batch_sums(statistics, features, labels, size)
        counts += np.bincount(labels, minlength=query.schema.classes)
        report_steps(bench.report, done, done + len(labels), len(records))
        done += len(labels)
    if not len(records):
        report_steps(bench.report, 0, 1, 1)
    return np.concatenate([sums, counts * query.count_step()])


def _statistics(query: Moments, bench: Bench) -> MomentStatistics:
    center = decode_center(bench.artifact(query.center), query) if query.center else None
    return MomentStatistics(query, public_network(query.backbone, bench), center)


def _batch_size(statistics: MomentStatistics) -> int:
    """From public numbers alone."""
    return min(max(_LARGEST_BATCH_VALUES // statistics.values_per_image, 1), LARGEST_BATCH)


@torch.inference_mode()
def _batch_sums(statistics: MomentStatistics, features: Features, labels: Labels, size: int) -> Integers:
    query, blanks = statistics.query, size - len(labels)
    images = np.pad(features, ((0, blanks), (0, 0))).reshape(-1, *query.schema.shape).transpose(0, 3, 1, 2)
    present = np.repeat([1.0, 0.0], [len(labels), blanks])
    sums = statistics.clipped_sums(
        *(torch.from_numpy(array).to(statistics.device) for array in (images, np.pad(labels, (0, blanks)), present))
    )
    return np.rint(flatten(sums).cpu().numpy() / query.grid()).astype(np.int64)
