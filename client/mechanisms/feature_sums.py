"""Feature sums (NDPDC, Dosser).

Released: for each signal, a network and an augmentation drawn from public seeds, and for each class, the sum of
(clip(features(x)), kappa) over a fresh Poisson sample of the records of that class; kappa, the last coordinate, counts
the sample. An empty sample sums to zero, so what is released of it is noise alone.
Neighbours: datasets of one silo that differ by one record added or removed.
Sensitivity: sqrt(clip^2 + kappa^2) in L2 for one signal: a record has one class, so it adds to one row, a vector no
longer than clip and beside it kappa. Both are cut to the grid towards zero, and features that are no numbers count as
0. What a network and an augmentation make of a record does not depend on who is beside it, to the last bit (`places`).
Event: one composition a signal of the Gaussian mechanism on Poisson samples, since every signal draws each record by a
coin of its own. Classes hold disjoint records, so they compose in parallel.
Reference: Zheng and Li, "Differentially private dataset condensation" (NDPDC), and Dosser; methods.md, sections 2 and
3. One public rate for all classes, and noisy sums with noisy counts in place of a division by private counts:
paper-notes.md, error 3. Noise is added once to each signal, by the guard: errors 1 and 2.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from silosynth.client.guard.entropy import coin_flips
from silosynth.client.guard.mechanism import Bench
from silosynth.client.mechanisms.exact_sums import clipped, grouped_sums, report_steps
from silosynth.client.mechanisms.places import Rows, Samples, batch_size, held_by, in_batches, without_gradients
from silosynth.common.augmentation import augment
from silosynth.common.auxiliary import as_inputs
from silosynth.common.datasets.records import Features, Records
from silosynth.common.devices import pick_device
from silosynth.common.queries import FeatureSums
from silosynth.common.signals import Signals

Integers = npt.NDArray[np.int64]

_LARGEST_BATCH = 64
_LARGEST_BATCH_VALUES = 1 << 25  # of the widest layer
_ORDINARY_SCALE = 0.3  # of Fourier features: at a server's, all might be alike


def feature_sums(query: FeatureSums, records: Records, bench: Bench) -> Integers:
    classes, device = query.schema.classes, pick_device(bench.device)
    sums = np.zeros((query.signals, classes, query.dimension), dtype=np.int64)
    counts = np.zeros((query.signals, classes), dtype=np.int64)
    signals, size = Signals(query, bench.artifact, device), _batch_size(query, device)
    for number in range(query.signals):
        rows = without_gradients(signals[query.first + number].features, device)
        drawn = np.flatnonzero(coin_flips(bench.entropy, len(records), query.sampling_probability))
        for batch, labels in records.take(drawn).batches(held_by(size)):
            (features,) = in_batches(rows, size, as_inputs(batch, query.schema))
            vectors = clipped(_numbers(features), 0.0, query.clip, query.grid())
            sums[number] += grouped_sums(labels, np.arange(len(labels)), vectors, classes)
            counts[number] += np.bincount(labels, minlength=classes)
        report_steps(bench.report, number, number + 1, query.signals)
    return np.concatenate([sums.reshape(-1), counts.reshape(-1) * query.count_step()])


def _batch_size(query: FeatureSums, device: torch.device) -> int:
    """From public numbers alone."""
    widest = query.width * (query.schema.dimension if query.network == "convnet" else 1)
    kind = ("features", query.network, query.width, query.schema.shape, query.augmentation, query.projected, device)
    largest = min(_LARGEST_BATCH_VALUES // widest, _LARGEST_BATCH)
    return batch_size(kind, largest, lambda: _trial(query, device))


def _trial(query: FeatureSums, device: torch.device) -> tuple[Rows, Samples]:
    """A signal of our own, and every augmentation by itself, of which a signal has one."""
    schema, dice = query.schema, torch.Generator().manual_seed(0)
    scale = _ORDINARY_SCALE if query.length_scale else 0.0
    ours = replace(query, seed=0, weights="", auxiliary="", length_scale=scale)
    signal = Signals(ours, lambda _: b"", device)[0]
    ways = [name for name in query.augmentation.split(",") if name]

    def both(inputs: Tensor) -> Tensor:
        augmented = [augment(inputs, way, seed=1).flatten(1) for way in ways]
        return torch.cat([signal.features(inputs), *augmented], dim=1)

    def samples(count: int) -> tuple[Tensor]:
        return (as_inputs(torch.randn(count, schema.dimension, generator=dice).numpy(), schema),)

    return without_gradients(both, device), samples


def _numbers(features: Tensor) -> Features:
    """Features that are no numbers become 0, whoever's they are."""
    found = features.numpy()
    return np.where(np.isfinite(found).all(axis=1, keepdims=True), found, np.float32(0))
