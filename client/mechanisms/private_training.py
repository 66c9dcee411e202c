"""Private training: a small classifier's weights by DP-SGD.

Released: the average of the last weights, on a grid.
Neighbours: datasets of one silo that differ by one record added or removed.
Sensitivity: of the sum of gradients in one step, `clip` in L2: every record of the step's sample adds its own gradient,
cut to that length and to an integer grid towards zero; one that is no number counts as 0. This takes what a network
makes of a record to be its own, whatever stands beside it in a batch: batches have one size, filled up with blanks.
Event: a Gaussian mechanism on a Poisson sample for each step, since every step draws each record by a coin of its own.
The noise is the guard's own, exactly rounded, and added to the sum before a step is taken: what follows, the steps and
the weights, is post-processing, so the guard has nothing to add. All of it, noise and weights, is drawn anew if the
guard is killed before the weights are in the ledger; nobody has seen anything then. Once there, they are never drawn
again. Steps are Adam's, which does not care how long gradients are: no division by a number of records.
Reference: Abadi et al., "Deep learning with differential privacy"; methods.md, section 0.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from silosynth.client.guard.entropy import coin_flips
from silosynth.client.guard.mechanism import Bench
from silosynth.client.guard.noise import rounded_gaussian
from silosynth.client.mechanisms.exact_sums import clipped, report_steps
from silosynth.client.mechanisms.public_networks import view_for
from silosynth.common.datasets.records import Records
from silosynth.common.queries import PrivateTraining
from silosynth.common.queries.base import fine_grid
from silosynth.common.teaching.views import draw_classifier, flat_weights

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Gradients = Callable[[Tensor, Tensor, Tensor], Floats]

_BATCH = 128
_LEARNING_RATE = {"linear": 0.03, "mlp": 0.005, "convnet": 0.005}
_FIRST_DECAY, _SECOND_DECAY = 0.9, 0.99  # Adam's
_AVERAGED = 0.95  # of the weights before, in their running average


def private_training(query: PrivateTraining, records: Records, bench: Bench) -> Integers:
    view = view_for(query, bench)
    classifier = draw_classifier(query.network, query.schema, query.features, query.seed)
    seen, labels = view.of_records(records.flat()).cpu(), torch.from_numpy(records.labels)
    gradients, descent = per_record_gradients(classifier), Descent(flat_weights(classifier), query.network)
    for step in range(query.steps):
        drawn = np.flatnonzero(coin_flips(bench.entropy, len(records), query.sampling_probability))
        sums = clipped_sum(gradients, descent.weights, seen[drawn], labels[drawn], query.clip)
        grid = fine_grid(query.clip, sums.size)
        noise = rounded_gaussian(query.noise_multiplier * query.clip / grid, sums.size, bench.entropy)
        descent.step(torch.from_numpy((sums + noise) * grid))
        report_steps(bench.report, step, step + 1, query.steps)
    return np.rint(descent.averaged.double().numpy() / query.grid()).astype(np.int64)


def clipped_sum(gradients: Gradients, weights: Tensor, seen: Tensor, labels: Tensor, clip: float) -> Integers:
    """Over all records, each cut to the length `clip`, in steps of `fine_grid`."""
    total, grid = np.zeros(len(weights), dtype=np.int64), fine_grid(clip, len(weights))
    for start in range(0, len(labels), _BATCH):
        part, their_labels = seen[start : start + _BATCH], labels[start : start + _BATCH]
        blanks = _BATCH - len(part)
        filled = torch.cat([part, part.new_zeros(blanks, *part.shape[1:])])
        found = gradients(weights, filled, F.pad(their_labels, (0, blanks)))[: len(part)]
        finite = np.where(np.isfinite(found).all(axis=1, keepdims=True), found, 0.0)
        total += clipped(finite, 0.0, clip, grid).sum(axis=0)
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
    return lambda weights, seen, labels: each(weights, seen, labels).detach().double().numpy()


class Descent:
    """Adam, and a running average of its weights, which the noise of single steps moves less."""

    def __init__(self, weights: Tensor, network: str) -> None:
        self.weights, self._rate = weights, _LEARNING_RATE[network]
        self._mean, self._square = torch.zeros_like(weights), torch.zeros_like(weights)
        self._average, self._steps = torch.zeros_like(weights), 0

    def step(self, gradient: Tensor) -> None:
        gradient = gradient.to(self.weights.dtype)
        self._steps += 1
        self._mean = torch.lerp(gradient, self._mean, _FIRST_DECAY)
        self._square = torch.lerp(gradient.square(), self._square, _SECOND_DECAY)
        mean = self._mean / (1 - _FIRST_DECAY**self._steps)
        square = self._square / (1 - _SECOND_DECAY**self._steps)
        self.weights = self.weights - self._rate * mean / (square.sqrt() + 1e-8)
        self._average = torch.lerp(self.weights, self._average, _AVERAGED)

    @property
    def averaged(self) -> Tensor:
        return self._average / (1 - _AVERAGED**self._steps)
