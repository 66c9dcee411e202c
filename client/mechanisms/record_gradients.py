"""Gradients of single records, cut to a length and to a grid, and their exact sum: what DP-SGD is made of.

A record's gradient must be its own to the last bit: `places` says why, and what is done about it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from silosynth.client.guard.mechanism import Report
from silosynth.client.mechanisms.exact_sums import clipped, report_steps
from silosynth.client.mechanisms.places import Rows, Samples, batch_size, in_batches
from silosynth.client.mechanisms.record_norms import with_fused_norms
from silosynth.common.queries.base import fine_grid

Integers = npt.NDArray[np.int64]

_LARGEST_BATCH = 128
_LARGEST_BATCH_VALUES = 1 << 27
_MAPS = 16  # as large as the widest layer's, for each record: what forward and backward pass hold at a time
_CACHED = 4  # gradients cut at a time: they stay in the processor's cache, which is twice as fast


@dataclass(frozen=True)
class RecordGradients:
    """Of the cross-entropy of one kind of classifier."""

    each: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]  # gradients and logits, from flat weights
    shapes: tuple[torch.Size, ...]  # of the classifier's weights

    def of(self, weights: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
        return lambda seen, labels: self.each(weights, seen, labels)[0]

    def batch_size(self, shape: torch.Size) -> int:
        """For records of this shape, from public numbers alone."""
        largest = min(_LARGEST_BATCH_VALUES // self._values(shape), _LARGEST_BATCH)
        return batch_size(("gradients", self.shapes, shape), largest, lambda: self._trial(shape))

    def _trial(self, shape: torch.Size) -> tuple[Rows, Samples]:
        dice = torch.Generator().manual_seed(0)
        weights = torch.cat([_ordinary(part, dice) for part in self.shapes])

        def rows(seen: Tensor, labels: Tensor) -> Tensor:
            gradients, logits = self.each(weights, seen, labels)
            return torch.cat([gradients, logits.flatten(1)], dim=1)

        def samples(count: int) -> tuple[Tensor, Tensor]:
            classes = self.shapes[-1].numel()
            return torch.randn(count, *shape, generator=dice), torch.randint(classes, (count,), generator=dice)

        return rows, samples

    def _values(self, shape: torch.Size) -> int:
        """Held for a record: its gradient, and maps of its widest layer."""
        widest = max(part.numel() for part in self.shapes if len(part) == 1)
        return sum(part.numel() for part in self.shapes) + _MAPS * widest * math.prod(shape[1:])


def clipped_sum(
    gradients: RecordGradients,
    weights: Tensor,
    seen: Tensor,
    labels: Tensor,
    clip: float,
    report: Report = lambda share: None,
) -> Integers:
    """Over all records, each cut to the length `clip`, in steps of `fine_grid`."""
    total, grid, done = np.zeros(len(weights), dtype=np.int64), fine_grid(clip, len(weights)), 0
    rows, size = gradients.of(weights.clone()), gradients.batch_size(seen.shape[1:])
    for batch in in_batches(rows, size, seen, labels):
        found = batch.detach().numpy()
        for few in np.split(found, range(_CACHED, len(found), _CACHED)):
            few[~np.isfinite(few.sum(axis=1, dtype=np.float64))] = 0
            total += clipped(few, 0.0, clip, grid).sum(axis=0)
        before, done = done, done + max(len(found), 1)
        report_steps(report, before, done, max(len(labels), 1))
    return total


def per_record_gradients(classifier: nn.Module) -> RecordGradients:
    """Its last parameter has as many values as there are classes."""
    names = [name for name, _ in classifier.named_parameters()]
    shapes = tuple(parameter.shape for parameter in classifier.parameters())
    sizes = [shape.numel() for shape in shapes]
    fused = with_fused_norms(classifier)

    def loss(weights: Tensor, record: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        tensors = [part.view(shape) for part, shape in zip(torch.split(weights, sizes), shapes, strict=True)]
        logits = functional_call(fused, dict(zip(names, tensors, strict=True)), (record[None],))
        return F.cross_entropy(logits, label[None]), logits

    return RecordGradients(vmap(grad(loss, has_aux=True), in_dims=(None, 0, 0)), shapes)


def _ordinary(shape: torch.Size, dice: torch.Generator) -> Tensor:
    """Weights for which no class is certain: rounding errors of logits then show in the gradients."""
    inputs = shape[1:].numel() if len(shape) > 1 else 4
    return torch.randn(shape.numel(), generator=dice) / math.sqrt(inputs)
