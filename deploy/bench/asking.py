"""Ways that ask silos, as over a real federation: the recipes, and DP-FedAvg."""

from __future__ import annotations

import math
import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Protocol

from torch import nn

from silosynth.common.config import parse
from silosynth.common.datasets import Records
from silosynth.common.errors import ConfigError
from silosynth.deploy.bench.matrix import Cell, Matrix
from silosynth.deploy.inprocess import InProcess
from silosynth.server.evaluation import evaluate
from silosynth.server.evaluation.baselines import DP_FEDAVG, accuracy_of, dp_fedavg
from silosynth.server.recipes import recipe_named
from silosynth.server.recipes.base import Ask, Made, Product, Step, Summed, Task, drive

Finding = dict[str, Any]


class Federation(Protocol):
    def ask(self, asked: Ask) -> Summed: ...

    def costs(self, seconds: float) -> Finding:
        """Whose work took how much, when this process has taken so many seconds."""
        ...


def found_by_asking(matrix: Matrix, cell: Cell, federation: Federation, test: Records) -> Finding:
    task = task_of(matrix, cell, test)
    if cell.way == DP_FEDAVG and not test.schema.is_image:
        raise ConfigError(f"dp-fedavg trains a ConvNet, {cell.dataset} has rows of a table: leave that baseline out")
    if cell.way == DP_FEDAVG:
        network, costs = _made(dp_fedavg(task, matrix.evaluation, matrix.descent_of(cell.dataset)), federation)
        return tested(network, test) | costs
    entry = matrix.recipes[cell.way]
    recipe = recipe_named(entry.recipe)
    parameters = parse(recipe.parameters, entry.parameters, cell.way)
    product, costs = _made(recipe.steps(task, parameters), federation)
    return _evaluated(matrix, product, test) | costs


def task_of(matrix: Matrix, cell: Cell, test: Records) -> Task:
    return Task(test.schema, math.inf if cell.epsilon is None else cell.epsilon, matrix.delta, cell.seed)


def tested(model: nn.Module, test: Records) -> Finding:
    begun = time.process_time()
    accuracy = accuracy_of(model, test)
    return {"accuracy": accuracy, "evaluation_seconds": round(time.process_time() - begun, 2)}


def _made(steps: Generator[Step, Summed, Made], federation: Federation) -> tuple[Made, Finding]:
    begun = time.process_time()
    made = drive(steps, federation.ask)
    return made, federation.costs(time.process_time() - begun)


def _evaluated(matrix: Matrix, product: Product, test: Records) -> Finding:
    found = evaluate(product, test, matrix.evaluation)
    return {
        "accuracy": found.accuracy,
        "own_classifier_accuracy": found.own_classifier_accuracy,
        "worst_class_accuracy": found.worst_class_accuracy,
        "calibration_error": found.calibration.expected_error if found.calibration else None,
        "distance": found.likeness.distance if found.likeness else None,
        "coverage": found.likeness.coverage if found.likeness else None,
        "synthetic_records": found.synthetic_records,
        "evaluation_seconds": found.cpu_seconds,
    }


@dataclass
class Here:
    """Silos in this process, and what they took and sent."""

    silos: InProcess
    seconds: float = 0.0
    sent_bytes: int = 0

    def ask(self, asked: Ask) -> Summed:
        begun = time.process_time()
        answer = self.silos.ask(asked)
        self.seconds += time.process_time() - begun
        self.sent_bytes += 8 * answer.plan.layout.size
        return answer

    def costs(self, seconds: float) -> Finding:
        return {
            "silo_seconds": round(self.seconds / len(self.silos.shards), 3),
            "server_seconds": round(seconds - self.seconds, 3),
            "sent_bytes": self.sent_bytes,
        }
