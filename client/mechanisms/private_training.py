"""Private training: a small classifier's weights by DP-SGD.

Released: the average of the last weights, on a grid.
Neighbours: datasets of one silo that differ by one record added or removed.
Sensitivity: of the sum of gradients in one step, `clip` in L2: every record of the step's sample adds its own gradient,
cut to that length and to an integer grid towards zero; one that is no number counts as 0. What networks make of a
record, features and gradient, does not depend on who is beside it, to the last bit (`places`).
Event: a Gaussian mechanism on a Poisson sample for each step, since every step draws each record by a coin of its own.
The noise is the guard's own, exactly rounded, and added to the sum before a step is taken: what follows, the steps and
the weights, is post-processing, so the guard has nothing to add. All of it, noise and weights, is drawn anew if the
guard is killed before the weights are in the ledger; nobody has seen anything then. Once there, they are never drawn
again. Steps are Adam's, which does not care how long gradients are: no division by a number of records.
Reference: Abadi et al., "Deep learning with differential privacy"; methods.md, section 0.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from silosynth.client.guard.entropy import coin_flips
from silosynth.client.guard.mechanism import Bench
from silosynth.client.guard.noise import rounded_gaussian
from silosynth.client.mechanisms.exact_sums import report_steps
from silosynth.client.mechanisms.public_networks import seen_alone
from silosynth.client.mechanisms.record_gradients import clipped_sum, per_record_gradients
from silosynth.common.datasets.records import Records
from silosynth.common.networks.weights import flat_weights
from silosynth.common.queries import PrivateTraining
from silosynth.common.queries.base import fine_grid
from silosynth.common.teaching.views import draw_classifier

Integers = npt.NDArray[np.int64]

_LEARNING_RATE = {"linear": 0.03, "mlp": 0.005, "convnet": 0.005}
_DECAYS = (0.9, 0.99)  # Adam's
_AVERAGED = 0.95  # of the weights before, in their running average


def private_training(query: PrivateTraining, records: Records, bench: Bench) -> Integers:
    classifier = draw_classifier(query.network, query.schema, query.features, query.seed)
    seen, labels = seen_alone(query, records, bench), torch.from_numpy(records.labels)
    gradients, descent = per_record_gradients(classifier), Descent(flat_weights(classifier), query.network)
    for step in range(query.steps):
        drawn = np.flatnonzero(coin_flips(bench.entropy, len(records), query.sampling_probability))
        sums = clipped_sum(gradients, descent.weights, seen[drawn], labels[drawn], query.clip)
        grid = fine_grid(query.clip, sums.size)
        noise = rounded_gaussian(query.noise_multiplier * query.clip / grid, sums.size, bench.entropy)
        descent.step(torch.from_numpy((sums + noise) * grid))
        report_steps(bench.report, step, step + 1, query.steps)
    return np.rint(descent.averaged.double().numpy() / query.grid()).astype(np.int64)


class Descent:
    """Adam, and a running average of its weights, which the noise of single steps moves less."""

    def __init__(self, weights: Tensor, network: str) -> None:
        self.weights, self._average, self._steps = weights.clone(), torch.zeros_like(weights), 0
        self._optimizer = torch.optim.Adam([self.weights], _LEARNING_RATE[network], _DECAYS)

    def step(self, gradient: Tensor) -> None:
        self.weights.grad = gradient.to(self.weights.dtype)
        self._optimizer.step()
        self._steps += 1
        self._average = torch.lerp(self.weights, self._average, _AVERAGED)

    @property
    def averaged(self) -> Tensor:
        return self._average / (1 - _AVERAGED**self._steps)
