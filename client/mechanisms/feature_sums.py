"""Feature sums (NDPDC, Dosser).

Released: for each signal, a network and an augmentation drawn from public seeds, and for each class, the sum of
(clip(features(x)), kappa) over a fresh Poisson sample of the records of that class; kappa, the last coordinate, counts
the sample. An empty sample sums to zero, so what is released of it is noise alone.
Neighbours: datasets of one silo that differ by one record added or removed.
Sensitivity: sqrt(clip^2 + kappa^2) in L2 for one signal: a record has one class, so it adds to one row, a vector no
longer than clip and beside it kappa. Both are cut to the grid towards zero, and features that are no numbers count as
0. This takes a record's features to be its own. The networks let no record see another, but the last bit of floating
point arithmetic may depend on the size of a batch and on a record's place in it. All batches have one size, filled up
with blanks, which leaves the place: neighbours are compared place by place, where a removed record leaves a blank.
Event: one composition a signal of the Gaussian mechanism on Poisson samples, since every signal draws each record by a
coin of its own. Classes hold disjoint records, so they compose in parallel.
Reference: Zheng and Li, "Differentially private dataset condensation" (NDPDC), and Dosser; methods.md, sections 2 and
3. One public rate for all classes, and noisy sums with noisy counts in place of a division by private counts:
paper-notes.md, error 3. Noise is added once to each signal, by the guard: errors 1 and 2.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from silosynth.client.guard.entropy import coin_flips
from silosynth.client.guard.mechanism import Bench
from silosynth.client.mechanisms.exact_sums import clipped, grouped_sums, report_steps
from silosynth.common.auxiliary import as_inputs
from silosynth.common.datasets.records import Features, Records
from silosynth.common.devices import pick_device
from silosynth.common.queries import FeatureSums
from silosynth.common.signals import Signal, Signals

Integers = npt.NDArray[np.int64]

_LARGEST_BATCH = 64
_LARGEST_BATCH_VALUES = 1 << 24  # of the widest layer


def feature_sums(query: FeatureSums, records: Records, bench: Bench) -> Integers:
    classes, device = query.schema.classes, pick_device(bench.device)
    sums = np.zeros((query.signals, classes, query.dimension), dtype=np.int64)
    counts = np.zeros((query.signals, classes), dtype=np.int64)
    signals = Signals(query, bench.artifact, device)
    for number in range(query.signals):
        signal = signals[query.first + number]
        drawn = np.flatnonzero(coin_flips(bench.entropy, len(records), query.sampling_probability))
        for batch, labels in records.take(drawn).batches(_batch_size(query)):
            vectors = clipped(_features(query, signal, batch, device), 0.0, query.clip, query.grid())
            sums[number] += grouped_sums(labels, np.arange(len(labels)), vectors, classes)
            counts[number] += np.bincount(labels, minlength=classes)
        report_steps(bench.report, number, number + 1, query.signals)
    return np.concatenate([sums.reshape(-1), counts.reshape(-1) * query.count_step()])


def _batch_size(query: FeatureSums) -> int:
    """From public numbers alone."""
    widest = query.width * query.schema.dimension
    return min(max(_LARGEST_BATCH_VALUES // widest, 1), _LARGEST_BATCH)


@torch.inference_mode()
def _features(query: FeatureSums, signal: Signal, batch: Features, device: torch.device) -> Features:
    """Of a batch filled up with blanks; features that are no numbers become 0, whoever's they are."""
    filled = np.zeros((_batch_size(query), query.schema.dimension), dtype=np.float32)
    filled[: len(batch)] = batch
    features = signal.features(as_inputs(filled, query.schema).to(device))[: len(batch)].cpu().numpy()
    return np.where(np.isfinite(features).all(axis=1, keepdims=True), features, np.float32(0))
