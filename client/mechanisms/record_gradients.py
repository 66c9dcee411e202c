"""Gradients of single records, cut to a length and to a grid, and their exact sum: what DP-SGD is made of."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from silosynth.client.mechanisms.exact_sums import clipped
from silosynth.common.queries.base import fine_grid

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Gradients = Callable[[Tensor, Tensor, Tensor], Floats]

_BATCH = 128


def clipped_sum(gradients: Gradients, weights: Tensor, seen: Tensor, labels: Tensor, clip: float) -> Integers:
    """Over all records, each cut to the length `clip`, in steps of `fine_grid`."""
    total, grid = np.zeros(len(weights), dtype=np.int64), fine_grid(clip, len(weights))
    for start in range(0, len(labels), _BATCH):
        part, their_labels = seen[start : start + _BATCH], labels[start : start + _BATCH]
        blanks = _BATCH - len(part)
        filled = torch.cat([part, part.new_zeros(blanks, *part.shape[1:])])
        found = gradients(weights, filled, F.pad(their_labels, (0, blanks)))[: len(part)]
        found[~np.isfinite(found.sum(axis=1, dtype=np.float64))] = 0
        total += clipped(found, 0.0, clip, grid).sum(axis=0)
    return total


def per_record_gradients(classifier: nn.Module) -> Gradients:
    """Of the cross-entropy, one row a record: from flat weights, what is seen of the records, and their labels."""
    names = [name for name, _ in classifier.named_parameters()]
    shapes = [parameter.shape for parameter in classifier.parameters()]
    sizes = [parameter.numel() for parameter in classifier.parameters()]

    def loss(weights: Tensor, record: Tensor, label: Tensor) -> Tensor:
        tensors = [part.view(shape) for part, shape in zip(torch.split(weights, sizes), shapes, strict=True)]
        logits = functional_call(classifier, dict(zip(names, tensors, strict=True)), (record[None],))
        return F.cross_entropy(logits, label[None])

    each = vmap(grad(loss), in_dims=(None, 0, 0))
    return lambda weights, seen, labels: each(weights, seen, labels).detach().numpy()
