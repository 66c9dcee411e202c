"""One cell of a matrix: deal records to silos, run the recipe or the baseline, evaluate."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import cache

import numpy as np
import torch
from torch import nn

from silosynth.common.datasets import Records
from silosynth.common.partition import partition
from silosynth.deploy.bench.apart import found_apart
from silosynth.deploy.bench.asking import Finding, Here, found_by_asking, task_of, tested
from silosynth.deploy.bench.local_training import dp_sgd, fedavg
from silosynth.deploy.bench.matrix import ALONE, DP_SGD, FEDAVG, POOLED, Cell, Matrix
from silosynth.deploy.bench.rows import Row, key_of
from silosynth.deploy.inprocess import InProcess
from silosynth.deploy.parts import held_and_public
from silosynth.deploy.provenance import commit, this_machine
from silosynth.server.evaluation import ceiling, model_for
from silosynth.server.evaluation.models import BACKBONE, build_model


def run_cell(matrix: Matrix, cell: Cell) -> Row:
    held, test = _parts(matrix.place_of(cell.dataset), matrix.datasets[cell.dataset].classes)
    found = _by_training if cell.way in TRAINED else found_apart if matrix.apart else _by_asking
    return Row(
        key=key_of(matrix, cell),
        cell=cell,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        commit=_commit(),
        machine=this_machine(),
        **found(matrix, cell, _shards(cell, held), test),
    )


def _by_asking(matrix: Matrix, cell: Cell, shards: list[Records], test: Records) -> Finding:
    return found_by_asking(matrix, cell, Here(InProcess(shards)), test)


def _by_training(matrix: Matrix, cell: Cell, shards: list[Records], test: Records) -> Finding:
    return {"server_seconds": 0.0} | TRAINED[cell.way](matrix, cell, shards, test)


def _pooled(matrix: Matrix, cell: Cell, shards: list[Records], test: Records) -> Finding:
    """The non-private ceiling."""
    return _alone(matrix, cell, shards, test) | {"accuracy_by_silo": ()}


def _alone(matrix: Matrix, cell: Cell, shards: list[Records], test: Records) -> Finding:
    """What each silo could do without the others, and without privacy."""
    begun = time.process_time()
    scores = tuple(ceiling(shard, test, matrix.evaluation, cell.seed) for shard in shards)
    seconds = round(time.process_time() - begun, 2)
    return {"accuracy": float(np.mean(scores)), "accuracy_by_silo": scores, "evaluation_seconds": seconds}


def _fedavg(matrix: Matrix, cell: Cell, shards: list[Records], test: Records) -> Finding:
    """What all could do together, without privacy."""
    model, begun = _fresh_model(matrix, cell, test), time.process_time()
    fedavg(model, shards, cell.seed)
    seconds = (time.process_time() - begun) / len(shards)
    return tested(model, test) | {"silo_seconds": round(seconds, 3)}


def _dp_sgd(matrix: Matrix, cell: Cell, shards: list[Records], test: Records) -> Finding:
    """What the first silo could do without the others, with the same privacy."""
    model, begun = _fresh_model(matrix, cell, test), time.process_time()
    dp_sgd(model, shards[0], task_of(matrix, cell, test), matrix.descent_of(cell.dataset))
    seconds = time.process_time() - begun
    return tested(model, test) | {"silo_seconds": round(seconds, 3), "silos_at_work": 1}


TRAINED = {POOLED: _pooled, ALONE: _alone, FEDAVG: _fedavg, DP_SGD: _dp_sgd}
"""Ways that read the shards themselves, which only a simulation can do. A new one also needs its name in `Matrix`."""


def _fresh_model(matrix: Matrix, cell: Cell, test: Records) -> nn.Module:
    """A ConvNet where others tune a public backbone: federated baselines start from nothing."""
    name = model_for(matrix.evaluation.model, test.schema, matrix.evaluation.protocol)
    name = "convnet" if name == BACKBONE else name
    return build_model(name, test.schema, cell.seed, torch.device("cpu"))


def _shards(cell: Cell, held: Records) -> list[Records]:
    if cell.records is not None:
        dice = np.random.default_rng(cell.seed)
        held = held.take(dice.integers(0, len(held), cell.records * cell.silos))
    parts = partition(cell.partition, held.labels, cell.silos, cell.seed)
    return [held.take(part) for number, part in enumerate(parts) if number != cell.without]


@cache
def _parts(place: str, classes: int | None) -> tuple[Records, Records]:
    return held_and_public(place, classes)


@cache
def _commit() -> str | None:
    """Of the code that was loaded, whatever becomes of the files meanwhile."""
    return commit()
