"""Moments of a public network's activations (SPS, SPS+).

Released: the sum of clip(v - center) over all records, and per class kappa times the number of its records. v holds
mean and second moment of a record's projected and squashed activations, at all layers, and at the last layers again
for every pseudo-class that holds the record's class; see `Moments`.
Neighbours: datasets of one silo that differ by one record added or removed.
Sensitivity: sqrt((bound (1 + slack))^2 + kappa^2) in L2: a record adds one vector no longer than bound, and kappa to
one count. What it adds is its own to the last bit: whole numbers times a whole factor (`whole_moments`), which follow
from its activations and its length, and these do not depend on who is beside it (`places`). Whole numbers are summed
exactly. The slack pays for lengths and for what becomes of the sums, with u = 2^-24, relative to bound:
- Lengths: sums of squares by rows of at most 1024 numbers are off by at most 2 * 1024 u, lengths by half of that, and
  by u sqrt(k / 2) / K more for rounded centres where a class is held by k <= 2^14 pseudo-classes, K >= 2^-8 (together
  below 2^-9).
- Sums of n records get their units and lose their centres in double precision: off by at most n 2^-50 in a coordinate,
  the vector with a record and that without it by n 2^-34 in k pseudo-classes, below 2^-9 for 2^25 records.
- Sums are rounded to the grid: each of d coordinates moves by at most one step, the vector by sqrt(d) steps, at most
  2^-12.
Event: one Gaussian mechanism.
Reference: "Summarize, privatize, synthesize" (SPS); methods.md, section 1; counts in the same vector: section 0.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from silosynth.client.guard.mechanism import Bench
from silosynth.client.mechanisms.exact_sums import report_steps
from silosynth.client.mechanisms.places import Rows, Samples, batch_size, filled, held_by
from silosynth.client.mechanisms.public_networks import channels_last, kind_of, of_our_own, public_network
from silosynth.client.mechanisms.whole_moments import (
    FACTOR_STEP,
    LARGEST_BATCH,
    MOST_POSITIONS,
    ReadingSums,
    WholeMoments,
)
from silosynth.common.backbones import Backbone
from silosynth.common.datasets.records import Records
from silosynth.common.errors import QueryError
from silosynth.common.queries import Moments
from silosynth.common.statistics import MomentStatistics, Statistics, decode_center, flatten, unflatten
from silosynth.common.statistics.groups import Groups

Integers = npt.NDArray[np.int64]
_Layers = tuple[list[Tensor], list[Tensor]]

_LARGEST_BATCH_VALUES = 1 << 27


@torch.inference_mode()
def moments(query: Moments, records: Records, bench: Bench) -> Integers:
    backbone = public_network(query.backbone, bench)
    center = decode_center(bench.artifact(query.center), query) if query.center else None
    statistics = MomentStatistics(query, backbone, center)
    if (most := max(statistics.positions)) > MOST_POSITIONS:
        raise QueryError(f"a layer of {most} positions is too large: moments are taken at up to {MOST_POSITIONS}")
    sums, size = _ClippedSums(statistics), _batch_size(statistics, backbone)
    counts, done = np.zeros(query.schema.classes, dtype=np.int64), 0
    for features, labels in records.batches(held_by(size)):
        sums.add(size, torch.from_numpy(features), torch.from_numpy(labels))
        counts += np.bincount(labels, minlength=query.schema.classes)
        report_steps(bench.report, done, done + len(labels), len(records))
        done += len(labels)
    if not len(records):  # a batch is computed all the same: memory it lacks must not tell
        sums.add(size, torch.zeros(0, query.schema.dimension), torch.zeros(0, dtype=torch.int64))
        report_steps(bench.report, 0, 1, 1)
    steps = np.rint(flatten(sums.total()).cpu().numpy() / query.grid())
    return np.concatenate([steps.astype(np.int64), counts * query.count_step()])


class _ClippedSums:
    """Of both readings of a query."""

    def __init__(self, statistics: MomentStatistics) -> None:
        self._statistics, query, positions = statistics, statistics.query, statistics.positions
        overall, by_class = statistics.readings
        last = positions[-query.class_layers :]
        self._readings = (
            ReadingSums(overall, positions, query.global_dimension, statistics.device),
            ReadingSums(by_class, last, query.class_dimension, statistics.device),
        )

    def add(self, size: int, features: Tensor, labels: Tensor) -> None:
        """Of a batch of this size, blanks included."""
        present = torch.ones(len(labels), dtype=torch.float64)
        images = features.view(-1, *self._statistics.query.schema.shape)
        batch = (part.to(self._statistics.device) for part in filled(size, images, labels, present))
        self._add(*batch)

    def _add(self, images: Tensor, labels: Tensor, present: Tensor) -> None:
        groups, bound = self._statistics.groups(labels), self._statistics.query.bound
        moments = self._moments(self._statistics.activations(channels_last(images)), groups)
        factors = bound / FACTOR_STEP / self._squared_norms(moments, groups).clamp(min=bound**2).sqrt()
        for reading, layers, sorted_in in zip(self._readings, moments, groups, strict=True):
            reading.add(layers, sorted_in, factors.floor() * present)

    def total(self) -> Statistics:
        (mean, second), by_class = (reading.total() for reading in self._readings)
        return Statistics(mean[0], second[0], *by_class)

    def raw(self, images: Tensor, labels: Tensor) -> Tensor:
        """All that is computed of a record which might depend on its place: activations and length, to the last bit."""
        groups, activations = self._statistics.groups(labels), self._statistics.activations(channels_last(images))
        seen = torch.cat([layer.flatten(1) for layers in activations for layer in layers], dim=1)
        norms = self._squared_norms(self._moments(activations, groups), groups)
        return torch.cat([seen, norms[:, None].view(torch.float32)], dim=1)

    def _moments(self, activations: _Layers, groups: tuple[Groups, Groups]) -> list[list[WholeMoments]]:
        everything = zip(self._readings, activations, groups, strict=True)
        return [reading.moments(layers, sorted_in) for reading, layers, sorted_in in everything]

    def _squared_norms(self, moments: list[list[WholeMoments]], groups: tuple[Groups, Groups]) -> Tensor:
        everything = zip(self._statistics.readings, moments, groups, strict=True)
        overall, by_class = (reading.squared_norms(layers, sorted_in) for reading, layers, sorted_in in everything)
        return overall + by_class


def _batch_size(statistics: MomentStatistics, backbone: Backbone) -> int:
    """From public numbers alone."""
    query = statistics.query
    sizes = (query.global_dimension, query.class_dimension)
    matrices = query.layers * sizes[0] ** 2 + query.class_layers * sizes[1] ** 2
    largest = min(_LARGEST_BATCH_VALUES // (statistics.values_per_image + matrices), LARGEST_BATCH)
    kind = ("moments", kind_of(backbone), query.schema, sizes, query.class_layers)
    return batch_size((*kind, bool(query.center)), largest, lambda: _trial(query, backbone))


def _trial(query: Moments, backbone: Backbone) -> tuple[Rows, Samples]:
    """On weights, projections and centres of our own."""
    query = replace(query, seed=0, pseudo_classes=0, classes_per_pseudo_class=0)
    dice, device, ours = torch.Generator().manual_seed(0), backbone.device, of_our_own(backbone)
    center = torch.rand(query.moments_layout().size, generator=dice, dtype=torch.float64) - 0.5
    statistics = MomentStatistics(query, ours, unflatten(center.numpy(), query) if query.center else None)

    def samples(count: int) -> tuple[Tensor, Tensor]:
        images = torch.randn(count, *query.schema.shape, generator=dice)
        labels = torch.randint(query.schema.classes, (count,), generator=dice)
        return images.to(device), labels.to(device)

    return _ClippedSums(statistics).raw, samples
