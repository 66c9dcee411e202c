"""What SPS and SPS+ are worth: accuracies of models trained on what they make, as rows of JSON.

    python tests/benchmarks/sps_accuracy.py --data FASHION_MNIST_FOLDER --out RESULTS --epsilons 1 8 inf --seeds 0 1 2

A row that is there already is not made again, so a stopped run goes on where it was. `--held-out` trains on five sixths
of the training records and tests on the others: settings are chosen with that alone. Records are dealt to silos by one
seed; the others are of the noise's, the images' and the models' making. `--table` prints the rows of a file.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import product as combinations
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from support.accuracy_rows import Scores, draw, parser_of, run, split_records
from support.entropies import SeededEntropy

from silosynth.common.datasets.records import Features
from silosynth.common.partition import partition
from silosynth.deploy.inprocess import InProcess
from silosynth.server.config import EvaluationSettings
from silosynth.server.evaluation import evaluate
from silosynth.server.recipes import recipe_named
from silosynth.server.recipes.base import Task, drive

DELTA = 1e-5
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "SPS": ("sps", {"stages": 1}),
    "SPS+": ("sps", {}),
    "SPS, local": ("sps", {"stages": 1, "generation": "local"}),
    "SPS+, local": ("sps", {"generation": "local"}),
    "SPS, paper": ("sps", {"statistics": "paper"}),
    "SPS+, paper": ("sps", {"statistics": "paper", "stages": 3, "pseudo_classes": 20, "classes_per_pseudo_class": 3}),
    "prototypes": ("prototypes", {}),
    "ridge": ("ridge", {}),
}


SCORES: Scores = {
    "hard": lambda row: row["accuracy"]["hard"],
    "gaussian": lambda row: row["accuracy"].get("gaussian"),
    "discriminant": lambda row: row["discriminant"],
}


@dataclass(frozen=True)
class Row:
    data: str
    variant: str
    epsilon: float
    silos: int
    seed: int
    images_per_class: int
    held_out: bool


def main() -> None:
    options = _options()
    _remember_what_networks_saw()
    wanted = combinations(options.seeds, options.silos, options.epsilons, options.variants)
    rows = (
        Row(options.data.name, variant, epsilon, silos, seed, options.images, options.held_out)
        for seed, silos, epsilon, variant in wanted
    )
    run(options, rows, made, SCORES)


def made(row: Row, options: argparse.Namespace) -> dict[str, Any]:
    train, test = split_records(options.data, options.classes, options.held_out)
    name, chosen = VARIANTS[row.variant]
    chosen = chosen | json.loads(options.parameters)
    if name == "sps":
        share = row.silos if chosen.get("generation") == "local" else 1
        chosen |= {"images_per_class": row.images_per_class // share}
    recipe, task = recipe_named(name), Task(train.schema, row.epsilon, DELTA, row.seed)
    shards = [train.take(part) for part in partition("iid", train.labels, row.silos, 0)]
    begun = time.process_time()
    product = drive(recipe.steps(task, recipe.parameters(**chosen)), InProcess(shards, SeededEntropy(row.seed)).ask)
    making = time.process_time() - begun
    settings = EvaluationSettings(protocol=options.protocol, steps=options.steps, seeds=options.evaluations)
    scores = {
        labels: evaluate(replace(product, soft_labels=soft), test, settings)
        for labels, soft in (("hard", None), ("gaussian", product.soft_labels))
        if labels == "hard" or soft is not None
    }
    draw(product, train, options.out / f"{'-'.join(str(part) for part in vars(row).values())}.png")
    own = next(iter(scores.values())).own_classifier_accuracy
    return {
        "accuracy": {labels: round(score.accuracy, 4) for labels, score in scores.items()},
        "discriminant": None if own is None else round(own, 4),
        "protocol": options.protocol,
        "steps": scores["hard"].steps,
        "parameters": chosen,
        "cpu_seconds": {
            "recipe": round(making),
            "evaluation": round(sum(score.cpu_seconds for score in scores.values())),
        },
    }


def _remember_what_networks_saw() -> None:
    """Seeds and budgets look at the same records through the same network: once is enough for a benchmark."""
    module: Any = import_module("silosynth.client.mechanisms.sufficient_statistics")
    seen_through, known = module.seen_through, dict[bytes, Features]()

    def remembering(query: Any, bench: Any) -> Callable[[Features], Features]:
        look = seen_through(query, bench)

        def recall(features: Features) -> Features:
            key = hashlib.sha256(query.backbone.encode() + features.tobytes()).digest()
            if key not in known:
                known[key] = look(features)
            return known[key]

        return recall

    module.seen_through = remembering


def _options() -> argparse.Namespace:
    parser = parser_of(__doc__, VARIANTS, "quick")
    parser.set_defaults(variants=["SPS", "SPS+"], evaluations=1)
    parser.add_argument("--epsilons", nargs="+", type=float, default=[1.0])
    parser.add_argument("--silos", nargs="+", type=int, default=[1, 5])
    parser.add_argument("--images", type=int, default=100, help="synthetic images per class, of all silos together")
    parser.add_argument("--parameters", default="{}", help="more of the recipe's parameters, as JSON")
    parser.add_argument("--steps", type=int, help="of the models' training; default: the protocol's")
    return parser.parse_args()


if __name__ == "__main__":
    main()
