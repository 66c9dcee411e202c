"""What every step of DP-GENG is worth, beside NDPDC and Dosser at the same budget: accuracies, as rows of JSON.

    python tests/benchmarks/dpgeng_accuracy.py --data FASHION_MNIST_FOLDER --out RESULTS --seeds 0 1 2

A row that is there already is not made again, and what silos answered and which networks were trained is kept, so a
stopped run goes on where it was. Networks that several rows share are in the CPU seconds of the first of them only.
Every row spends the whole budget: a step that is left out leaves its share to the others. "pool" are any images of the
generator, "+ init" its most typical ones, from which matching starts; "packed" has four records in each image. Contact
sheets of all rows lie beside the file.
`--held-out` trains on five sixths of the training records and tests on the others: settings are chosen with that alone.
`--table` prints the rows of a file.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from itertools import product as combinations
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from support.accuracy_rows import draw, measured, parser_of, run, split_records
from support.kept_answers import Silos, made_by

from silosynth.server.config import EvaluationSettings
from silosynth.server.evaluation import evaluate
from silosynth.server.recipes.base import Task
from silosynth.server.recipes.workplace import Workplace

DELTA = 1e-5
SIGNALS = {"signals": 300, "sampling_probability": 0.02}
PLAIN: dict[str, Any] = {"packed": False}
POOL: dict[str, Any] = {**PLAIN, "matching_share": 0.0, "guided": False, "typical": False}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "pool": ("dpgeng", POOL),
    "+ init": ("dpgeng", POOL | {"typical": True}),
    "+ matching": ("dpgeng", PLAIN | {"guided": False}),
    "+ expert": ("dpgeng", PLAIN),
    "packed, + init": ("dpgeng", POOL | {"packed": True, "typical": True}),
    "packed, + matching": ("dpgeng", {"packed": True, "guided": False}),
    "packed, + expert": ("dpgeng", {"packed": True}),
    "ndpdc": ("ndpdc", SIGNALS),
    "dosser": ("dosser", SIGNALS),
    "dosser, SER, PEA": ("dosser", SIGNALS | {"projected": 100, "enlarged": True}),
}
GENERATORS: dict[str, dict[str, Any]] = {
    "merf": {"method": "merf"},
    "merf-backbone": {"method": "merf", "embedding": "backbone"},
    "evolution": {"method": "evolution"},
}


@dataclass(frozen=True)
class Row:
    data: str
    variant: str
    generator: str
    epsilon: float
    records_per_class: int
    seed: int
    held_out: bool


def main() -> None:
    options = _options()
    run(options, _rows(options), made)


def _rows(options: argparse.Namespace) -> list[Row]:
    """Those without a generator once, whichever there are."""
    wanted = combinations(options.seeds, options.records, options.epsilons, options.variants, options.generators)
    rows = [
        Row(options.data.name, variant, generator if _generates(variant) else "", budget, count, seed, options.held_out)
        for seed, count, budget, variant, generator in wanted
    ]
    return list(dict.fromkeys(rows))


def _generates(variant: str) -> bool:
    return VARIANTS[variant][0] == "dpgeng"


def made(row: Row, options: argparse.Namespace) -> dict[str, Any]:
    train, test = split_records(options.data, options.classes, row.held_out)
    name, changes = VARIANTS[row.variant]
    chosen = {"records_per_class": row.records_per_class, "augmentation": options.augmentation} | changes
    if name == "dosser":  # as in feature_accuracy.py's table
        chosen |= {"steps": 1200 if row.records_per_class <= 10 else 400}
    if _generates(row.variant):
        chosen |= {"generator": GENERATORS[row.generator] | options.generator_settings} | options.settings
    silos = Silos([train], options.out / f"answers-{row.data}{'-held-out' * row.held_out}", row.seed)
    task = Task(train.schema, row.epsilon, DELTA, row.seed, Workplace(options.out / "checkpoints"))
    product, seconds = made_by(name, chosen, task, silos)
    settings = EvaluationSettings(protocol=options.protocol, steps=options.evaluation_steps, seeds=options.evaluations)
    evaluation = evaluate(product, test, settings)
    title = [row.data, row.variant, row.generator, row.epsilon, row.records_per_class, row.seed]
    draw(product, train, options.out / f"{'-'.join(str(part) for part in title if part != '')}.png")
    own = evaluation.own_classifier_accuracy
    return measured(evaluation, options.protocol, chosen, seconds) | ({} if own is None else {"expert": round(own, 4)})


def _options() -> argparse.Namespace:
    parser = parser_of(__doc__, VARIANTS, "family-short")
    parser.add_argument("--generators", nargs="+", default=["merf"], choices=list(GENERATORS))
    parser.add_argument("--epsilons", nargs="+", type=float, default=[1.0, 10.0])
    parser.add_argument("--records", nargs="+", type=int, default=[10, 50], help="synthetic records per class")
    parser.add_argument("--augmentation", default="color,crop,cutout,scale,rotate", help="of signals and extractors")
    parser.add_argument("--evaluation-steps", type=int, help="of each model's training; default: the protocol's")
    settings = "as JSON; rows do not tell, so use another --out"
    parser.add_argument("--settings", type=json.loads, default={}, help=f"other parameters of dpgeng, {settings}")
    parser.add_argument("--generator-settings", type=json.loads, default={}, help=f"of its generator, {settings}")
    return parser.parse_args()


if __name__ == "__main__":
    main()
