"""Adult at epsilon 1 and 100 synthetic rows: what Dosser and NDPDC are worth beside simple private baselines.

    python tests/benchmarks/table_accuracy.py --data ADULT_FOLDER --seeds 0 1 2 [--held-out]

`--held-out` tests on a sixth of the training records, which is what settings are chosen with.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from support.adult import ADULT
from support.entropies import SeededEntropy

from silosynth.common.config import parse
from silosynth.common.datasets import DataConfig, Records, load_records
from silosynth.common.partition import partition
from silosynth.deploy.inprocess import InProcess
from silosynth.server.config import EvaluationSettings
from silosynth.server.evaluation import evaluate
from silosynth.server.recipes import recipe_named
from silosynth.server.recipes.base import Task, drive

EPSILON, DELTA = 1.0, 1e-5
DOSSER = {"records_per_class": 50, "signals": 1000, "sampling_probability": 0.02, "steps": 3000}
RECIPES: dict[str, dict[str, Any]] = {
    "ndpdc": {"records_per_class": 50, "signals": 1000, "sampling_probability": 0.02},
    "dosser": DOSSER | {"proportional": True},
    "dosser, as many of both": DOSSER,
    "ldpdc": {},
    "prototypes": {},
    "ridge": {"records_per_class": 50},
}


def main() -> None:
    options = _options()
    torch.set_num_threads(1)
    train, test = (_load(options.data, name) for name in ("adult.data", "adult.test"))
    if options.held_out:
        order = np.random.default_rng(0).permutation(len(train))
        train, test = train.take(order[len(train) // 6 :]), train.take(order[: len(train) // 6])
    for name in options.recipes:
        for silos in options.silos:
            for seed in options.seeds:
                print(json.dumps(_row(name, silos, seed, train, test)), flush=True)


def _row(name: str, silos: int, seed: int, train: Records, test: Records) -> dict[str, Any]:
    recipe, begun = recipe_named(name.partition(",")[0]), time.process_time()
    shards = [train.take(part) for part in partition("iid", train.labels, silos, seed)]
    steps = recipe.steps(Task(train.schema, EPSILON, DELTA, seed), recipe.parameters(**RECIPES[name]))
    product = drive(steps, InProcess(shards, SeededEntropy(seed)).ask)
    seconds = time.process_time() - begun
    evaluation = evaluate(product, test, EvaluationSettings(architectures=("mlp",)))
    return {
        "recipe": name,
        "silos": silos,
        "seed": seed,
        "rows": len(product.labels),
        "linear": round(evaluation.by_architecture["linear"].accuracy, 4),
        "mlp": round(evaluation.by_architecture["mlp"].accuracy, 4),
        "own": evaluation.own_classifier_accuracy and round(evaluation.own_classifier_accuracy, 4),
        "floor": round(evaluation.floor, 4),
        "cpu_seconds": round(seconds, 1),
    }


def _load(folder: Path, name: str) -> Records:
    return load_records(parse(DataConfig, {"path": name, **tomllib.loads(ADULT)}, "adult.toml"), folder)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with adult.data and adult.test")
    parser.add_argument("--recipes", nargs="+", default=list(RECIPES), choices=list(RECIPES))
    parser.add_argument("--silos", nargs="+", type=int, default=[1])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--held-out", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
