"""Other ways to learn from the same silos, at the same price: what a synthetic set is compared with.

A recipe with its usual parameters, judged by models trained on its records, or `dp-fedavg`, which makes no records but
a model. Either is a conversation of queries, so it runs over a real federation as well as in a simulation, and whoever
answers is charged.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace

from torch import nn

from silosynth.common.datasets.records import Records
from silosynth.common.networks.extractors import Network, draw_network
from silosynth.common.queries import Query
from silosynth.server.config import EvaluationSettings
from silosynth.server.evaluation.examples import Examples
from silosynth.server.evaluation.models import convnet_width, model_for
from silosynth.server.evaluation.report import Baseline
from silosynth.server.evaluation.scores import evaluate
from silosynth.server.evaluation.training import predict
from silosynth.server.recipes import recipe_named
from silosynth.server.recipes.base import Ask, Step, Summed, Task, drive
from silosynth.server.recipes.federated_descent import FederatedDescent
from silosynth.server.recipes.outlook import Crowd

DP_FEDAVG = "dp-fedavg"
PRIVATE_DESCENT = FederatedDescent(width=32, steps=60, sampling_probability=0.2, clip=1.0, learning_rate=1e-2)
"""Of every baseline that is DP-SGD; chosen on a held-out part of the digits' training records."""


def dp_fedavg(
    task: Task, settings: EvaluationSettings, descent: FederatedDescent = PRIVATE_DESCENT
) -> Generator[Step, Summed, Network]:
    """Federated averaging with one local step a round, so that the silos' noise is averaged before every step."""
    width = convnet_width(model_for(settings.model, task.schema, settings.protocol))
    network = draw_network("convnet", task.schema, width, task.seed)
    noise = descent.noise_multiplier(task.epsilon, task.delta)
    return (yield from replace(descent, width=width).train(task, network, noise, what=DP_FEDAVG))


def queries_of(name: str, task: Task, crowd: Crowd) -> Sequence[Query]:
    """What each silo would be asked, for planning."""
    if name != DP_FEDAVG:
        recipe = recipe_named(name)
        return recipe.outlook(task, recipe.parameters(), crowd).queries
    noise = PRIVATE_DESCENT.noise_multiplier(task.epsilon, task.delta)
    return [PRIVATE_DESCENT.query(task, noise, "0" * 64)] * PRIVATE_DESCENT.steps


def accuracy_of(network: nn.Module, test: Records) -> float:
    answers = predict(network.eval(), Examples(test, None, next(network.parameters()).device))
    return float((answers.argmax(axis=1) == test.labels).mean())


def measure(
    name: str, task: Task, test: Records, settings: EvaluationSettings, ask: Callable[[Ask], Summed]
) -> Baseline:
    """A comparison that is asked for over a federation: `ask` is answered by its silos."""
    begun = time.process_time()
    if name == DP_FEDAVG:
        accuracy, own = accuracy_of(drive(dp_fedavg(task, settings), ask), test), None
    else:
        recipe = recipe_named(name)
        product = drive(recipe.steps(task, recipe.parameters()), ask)
        found = evaluate(product, test, settings.model_copy(update={"architectures": ()}))
        accuracy, own = found.accuracy, found.own_classifier_accuracy
    return Baseline(
        epsilon=task.epsilon if math.isfinite(task.epsilon) else None,
        accuracy=accuracy,
        own_classifier_accuracy=own,
        cpu_seconds=round(time.process_time() - begun, 2),
    )
