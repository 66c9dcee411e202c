"""One cell of a matrix: deal records to silos, run the recipe or the baseline, evaluate."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any

import numpy as np

from silosynth.common.config import parse
from silosynth.common.datasets import Records
from silosynth.common.partition import partition
from silosynth.deploy.bench.matrix import ALONE, POOLED, Cell, DatasetEntry, Matrix
from silosynth.deploy.bench.rows import Row, key_of
from silosynth.deploy.inprocess import InProcess
from silosynth.deploy.parts import held_and_public
from silosynth.deploy.provenance import commit, this_machine
from silosynth.server.evaluation import ceiling, evaluate
from silosynth.server.recipes import recipe_named
from silosynth.server.recipes.base import Product, Step, Summed, Task, drive

Finding = dict[str, Any]


def run_cell(matrix: Matrix, cell: Cell) -> Row:
    held, test = _parts(matrix.datasets[cell.dataset])
    shards = _shards(cell, held)
    made = BASELINES.get(cell.way, _by_recipe)
    return Row(
        key=key_of(matrix, cell),
        cell=cell,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        commit=_commit(),
        machine=this_machine(),
        **made(matrix, cell, shards, test),
    )


def _by_recipe(matrix: Matrix, cell: Cell, shards: list[Records], test: Records) -> Finding:
    entry = matrix.recipes[cell.way]
    recipe, federation = recipe_named(entry.recipe), _Timed(InProcess(shards))
    parameters = parse(recipe.parameters, entry.parameters, cell.way)
    epsilon = math.inf if cell.epsilon is None else cell.epsilon
    begun = time.process_time()
    product = drive(recipe.steps(Task(test.schema, epsilon, matrix.delta, cell.seed), parameters), federation.ask)
    taken = time.process_time() - begun
    return {
        **_evaluated(matrix, product, test),
        "silo_seconds": round(federation.seconds / len(shards), 3),
        "server_seconds": round(taken - federation.seconds, 3),
        "sent_bytes": federation.sent_bytes,
    }


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


def _pooled(matrix: Matrix, cell: Cell, shards: list[Records], test: Records) -> Finding:
    """The non-private ceiling."""
    return _alone(matrix, cell, shards, test) | {"accuracy_by_silo": ()}


def _alone(matrix: Matrix, cell: Cell, shards: list[Records], test: Records) -> Finding:
    """What each silo could do without the others, and without privacy."""
    begun = time.process_time()
    scores = tuple(ceiling(shard, test, matrix.evaluation) for shard in shards)
    seconds = round(time.process_time() - begun, 2)
    return {
        "accuracy": float(np.mean(scores)),
        "accuracy_by_silo": scores,
        "server_seconds": 0.0,
        "evaluation_seconds": seconds,
    }


BASELINES = {POOLED: _pooled, ALONE: _alone}
"""Other ways by name, from shards and public test records to figures. A new one also needs its name in `Matrix`."""


@dataclass
class _Timed:
    """A federation, and what its silos took and sent."""

    federation: InProcess
    seconds: float = 0.0
    sent_bytes: int = 0

    def ask(self, step: Step) -> Summed:
        begun = time.process_time()
        answer = self.federation.ask(step)
        self.seconds += time.process_time() - begun
        self.sent_bytes += 8 * answer.plan.layout.size
        return answer


def _shards(cell: Cell, held: Records) -> list[Records]:
    if cell.records is not None:
        dice = np.random.default_rng(cell.seed)
        held = held.take(dice.integers(0, len(held), cell.records * cell.silos))
    parts = partition(cell.partition, held.labels, cell.silos, cell.seed)
    return [held.take(part) for number, part in enumerate(parts) if number != cell.without]


@cache
def _parts(entry: DatasetEntry) -> tuple[Records, Records]:
    return held_and_public(entry.data, entry.classes)


@cache
def _commit() -> str | None:
    """Of the code that was loaded, whatever becomes of the files meanwhile."""
    return commit()
