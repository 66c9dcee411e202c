"""Gradients of single records, cut to a length and to a grid, and their exact sum: what DP-SGD is made of.

A record's gradient must be its own to the last bit, wherever among others it is computed: weights are a server's, who
may choose them so that rounding errors decide everything, and a record that is left out moves all others by a place.
Matrix products round some rows of a batch otherwise, on some processors the last few. So all batches have one size,
their last places stay blank, and whether the others are alike is tried on this machine before it is relied upon.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from silosynth.client.mechanisms.exact_sums import clipped
from silosynth.client.mechanisms.record_norms import with_fused_norms
from silosynth.common.queries.base import fine_grid

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]

_BATCH, _PLACES = 128, 120  # of a batch, and those of them that hold records
_CACHED = 4  # gradients cut at a time: they stay in the processor's cache, which is twice as fast
_known_to_be_alike: dict[tuple[object, ...], bool] = {}


@dataclass(frozen=True)
class RecordGradients:
    """Of the cross-entropy of one kind of classifier; a row for each record, from flat weights."""

    each: Callable[[Tensor, Tensor, Tensor], Tensor]
    shapes: tuple[torch.Size, ...]  # of the classifier's weights

    def __call__(self, weights: Tensor, seen: Tensor, labels: Tensor) -> Floats:
        """Of up to `_PLACES` records: together where that changes nothing, else one by one."""
        if self._places_are_alike(seen):
            return self._together(weights, seen, labels)
        alone = [self.each(weights, seen[i : i + 1], labels[i : i + 1]) for i in range(len(labels))]
        return torch.cat(alone).detach().numpy()

    def _together(self, weights: Tensor, seen: Tensor, labels: Tensor) -> Floats:
        blanks = _BATCH - len(labels)
        filled = torch.cat([seen, seen.new_zeros(blanks, *seen.shape[1:])])
        return self.each(weights, filled, F.pad(labels, (0, blanks))).detach().numpy()[: len(labels)]

    def _places_are_alike(self, like: Tensor) -> bool:
        """Which rows are rounded otherwise depends on shapes and threads, not on what is computed: one trial tells."""
        kind = (self.shapes, like.shape[1:], torch.get_num_threads())
        if kind not in _known_to_be_alike:
            dice = torch.Generator().manual_seed(0)
            weights = torch.randn(sum(map(torch.Size.numel, self.shapes)), generator=dice)
            same = torch.randn(like.shape[1:], generator=dice).expand(_PLACES, *like.shape[1:])
            rows = self._together(weights, same, torch.zeros(_PLACES, dtype=torch.int64))
            _known_to_be_alike[kind] = bool((rows.view(np.int32) == rows[:1].view(np.int32)).all())
        return _known_to_be_alike[kind]


def clipped_sum(gradients: RecordGradients, weights: Tensor, seen: Tensor, labels: Tensor, clip: float) -> Integers:
    """Over all records, each cut to the length `clip`, in steps of `fine_grid`."""
    total, grid = np.zeros(len(weights), dtype=np.int64), fine_grid(clip, len(weights))
    for start in range(0, len(labels), _PLACES):
        here = slice(start, start + _PLACES)
        found = gradients(weights, seen[here], labels[here])
        for few in np.split(found, range(_CACHED, len(found), _CACHED)):
            few[~np.isfinite(few.sum(axis=1, dtype=np.float64))] = 0
            total += clipped(few, 0.0, clip, grid).sum(axis=0)
    return total


def per_record_gradients(classifier: nn.Module) -> RecordGradients:
    names = [name for name, _ in classifier.named_parameters()]
    shapes = tuple(parameter.shape for parameter in classifier.parameters())
    sizes = [shape.numel() for shape in shapes]
    fused = with_fused_norms(classifier)

    def loss(weights: Tensor, record: Tensor, label: Tensor) -> Tensor:
        tensors = [part.view(shape) for part, shape in zip(torch.split(weights, sizes), shapes, strict=True)]
        logits = functional_call(fused, dict(zip(names, tensors, strict=True)), (record[None],))
        return F.cross_entropy(logits, label[None])

    return RecordGradients(vmap(grad(loss), in_dims=(None, 0, 0)), shapes)
