"""What NDPDC and Dosser are worth: accuracies of models trained on what they make, as rows of JSON.

    python tests/benchmarks/feature_accuracy.py --data FASHION_MNIST_FOLDER --out RESULTS --seeds 0 1 2

A row that is there already is not made again, and what silos answered is kept, so a stopped run goes on where it was.
`--held-out` trains on five sixths of the training records and tests on the others: settings are chosen with that alone.
`--table` prints the rows of a file.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from itertools import product as combinations
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from support.accuracy_rows import draw, measured, parser_of, run, split_records
from support.kept_answers import Silos, made_by

from silosynth.common.partition import partition
from silosynth.common.projection import Projection
from silosynth.common.signals import Signals
from silosynth.server.config import EvaluationSettings
from silosynth.server.evaluation import evaluate
from silosynth.server.recipes.base import Task

EPSILON, DELTA = 1.0, 1e-5
SIGNALS = {"signals": 300, "sampling_probability": 0.02}
ONCE = {"steps": SIGNALS["signals"]}  # Dosser without DOS: as many steps as signals
SER = {"projected": 100}  # with procedural auxiliary images, which cost nothing
PEA = {"enlarged": True}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "ndpdc": ("ndpdc", {}),
    "dosser": ("dosser", {}),
    "dosser, no DOS": ("dosser", ONCE),
    "dosser, SER": ("dosser", SER),
    "dosser, SER, no DOS": ("dosser", SER | ONCE),
    "dosser, PEA": ("dosser", PEA),
    "dosser, SER, PEA": ("dosser", SER | PEA),
}


@dataclass(frozen=True)
class Row:
    data: str
    variant: str
    records_per_class: int
    silos: int
    seed: int
    held_out: bool


def main() -> None:
    options = _options()
    _remember_bases()
    wanted = combinations(options.seeds, options.silos, options.records, options.variants)
    rows = (
        Row(options.data.name, variant, count, silos, seed, options.held_out) for seed, silos, count, variant in wanted
    )
    run(options, rows, made)


def made(row: Row, options: argparse.Namespace) -> dict[str, Any]:
    train, test = split_records(options.data, options.classes, options.held_out)
    name, changes = VARIANTS[row.variant]
    chosen = SIGNALS | {"records_per_class": row.records_per_class, "augmentation": options.augmentation}
    chosen |= changes if name == "ndpdc" else {"steps": options.steps} | changes
    shards = [train.take(part) for part in partition("iid", train.labels, row.silos, row.seed)]
    silos = Silos(shards, options.out / f"answers-{row.data}{'-held-out' * row.held_out}", row.seed)
    product, seconds = made_by(name, chosen, Task(train.schema, EPSILON, DELTA, row.seed), silos)
    settings = EvaluationSettings(protocol=options.protocol, seeds=options.evaluations)
    evaluation = evaluate(product, test, settings)
    draw(product, train, options.out / f"{row.data}-{row.variant}-{row.records_per_class}-{row.silos}-{row.seed}.png")
    return measured(evaluation, options.protocol, chosen, seconds)


def _remember_bases() -> None:
    """Silos and server, one silo and five, few records and many use the same ones: once is enough for a benchmark."""
    unaided: Any = Signals.__dict__["_projection"]
    known: dict[tuple[Any, ...], Projection] = {}

    def recall(signals: Any, plain: Any, auxiliary: Any) -> Projection:
        query = signals._query
        key = (query.schema, query.projected, query.width, query.seed, plain.augmentation, plain.augmentation_seed)
        if key not in known:
            known[key] = unaided(signals, plain, auxiliary)
        return known[key]

    Signals._projection = recall  # type: ignore[method-assign]


def _options() -> argparse.Namespace:
    parser = parser_of(__doc__, VARIANTS, "family-short")
    parser.add_argument("--records", nargs="+", type=int, default=[10], help="synthetic records per class")
    parser.add_argument("--silos", nargs="+", type=int, default=[1])
    parser.add_argument("--steps", type=int, default=1500, help="of Dosser's optimization")
    parser.add_argument("--augmentation", default="color,crop,cutout,scale,rotate", help="of the signals")
    return parser.parse_args()


if __name__ == "__main__":
    main()
