"""Baselines that train a model where the records are: only a simulation can run them.

The federated ones that ask silos, as a real federation would, are in `server/evaluation/baselines.py`.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from silosynth.common.datasets import Records
from silosynth.common.networks.weights import flat_weights, with_weights
from silosynth.server.evaluation.examples import Examples
from silosynth.server.recipes.base import Task
from silosynth.server.recipes.federated_descent import FederatedDescent

_ROUNDS, _LOCAL_STEPS, _BATCH = 10, 20, 64
_LOCAL_RATE, _MOMENTUM = 0.02, 0.9


def fedavg(model: nn.Module, shards: list[Records], seed: int) -> None:
    """McMahan et al.: local steps of SGD, then the mean of the weights by numbers of records. Not private."""
    examples, dice = [Examples(shard, None, torch.device("cpu")) for shard in shards], torch.Generator()
    dice.manual_seed(seed)
    total = sum(map(len, examples))
    for _ in range(_ROUNDS):
        mean = torch.zeros_like(flat_weights(model))
        for here in examples:
            mean += len(here) / total * _locally_trained(copy.deepcopy(model), here, dice)
        with_weights(model, mean)


def _locally_trained(model: nn.Module, examples: Examples, dice: torch.Generator) -> Tensor:
    optimizer = torch.optim.SGD(model.parameters(), _LOCAL_RATE, _MOMENTUM)
    for _ in range(_LOCAL_STEPS):
        rows = torch.randint(len(examples), (_BATCH,), generator=dice)
        _step(model, optimizer, examples.inputs(rows), examples.targets[rows])
    return flat_weights(model)


def dp_sgd(model: nn.Module, records: Records, task: Task, descent: FederatedDescent) -> None:
    """Abadi et al., by Opacus, with the noise that our own accounting asks for. Its noise is torch's, not a guard's."""
    from opacus import PrivacyEngine

    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that this is no secure noise: it protects nobody here
        torch.manual_seed(task.seed)
        batches = _batches(records, descent.sampling_probability)
        descent = replace(descent, sampling_probability=1 / len(batches))  # as Opacus draws
        private, optimizer, batches = PrivacyEngine().make_private(
            module=model,
            optimizer=torch.optim.Adam(model.parameters(), descent.learning_rate),
            data_loader=batches,
            noise_multiplier=descent.noise_multiplier(task.epsilon, task.delta),
            max_grad_norm=descent.clip,
        )
        for inputs, labels in islice(_without_end(batches), descent.steps):
            _step(private, optimizer, inputs, labels)


def _batches(records: Records, share: float) -> DataLoader[tuple[Tensor, ...]]:
    examples = Examples(records, None, torch.device("cpu"))
    every = TensorDataset(examples.inputs(slice(None)), examples.targets)
    return DataLoader(every, max(round(share * len(examples)), 1))


def _without_end(batches: DataLoader[tuple[Tensor, ...]]) -> Iterator[tuple[Tensor, ...]]:
    while True:
        yield from batches


def _step(model: nn.Module, optimizer: torch.optim.Optimizer, inputs: Tensor, labels: Tensor) -> None:
    optimizer.zero_grad()
    functional.cross_entropy(model(inputs), labels).backward()  # type: ignore[no-untyped-call]
    optimizer.step()
