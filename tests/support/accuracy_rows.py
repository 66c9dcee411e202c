"""What scripts that measure accuracies share: options, public data, rows made once, pictures, whose code it was.

Options of every such script: `--held-out` trains on five sixths of the training records and tests on the others;
settings are chosen with that alone. `--table` prints the rows of a file. A row that is there is not made again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from silosynth.common.datasets import Records, load
from silosynth.server.evaluation import Evaluation
from silosynth.server.recipes.base import Product
from silosynth.server.releases.contact_sheet import contact_sheet

Scores = dict[str, Callable[[dict[str, Any]], float | None]]
ACCURACY: Scores = {"accuracy": lambda row: row["accuracy"]}


def parser_of(description: str | None, variants: Iterable[str], protocol: str) -> argparse.ArgumentParser:
    """The options that all scripts have."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of images in IDX files or CIFAR batches")
    parser.add_argument("--out", type=Path, required=True, help="folder for rows.jsonl and all that is kept beside it")
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--variants", nargs="+", default=list(variants), choices=list(variants))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--protocol", default=protocol)
    parser.add_argument("--evaluations", type=int, default=3, help="models trained on each synthetic set")
    parser.add_argument("--held-out", action="store_true", help="test on a sixth of the training records")
    parser.add_argument("--table", action="store_true", help="print what was found so far")
    return parser


def run(
    options: argparse.Namespace,
    rows: Iterable[Any],
    made: Callable[[Any, argparse.Namespace], dict[str, Any]],
    scores: Scores = ACCURACY,
) -> None:
    """Makes the rows, or prints the table of those that are there."""
    file = options.out / "rows.jsonl"
    if options.table:
        print(table([json.loads(line) for line in file.read_text().splitlines()], scores))
        return
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    make_missing(rows, lambda row: made(row, options), file)


def measured(evaluation: Evaluation, protocol: str, chosen: dict[str, Any], seconds: dict[str, int]) -> dict[str, Any]:
    """What a row tells beside its setting."""
    return {
        "accuracy": round(evaluation.accuracy, 4),
        "accuracy_by_run": [round(accuracy, 4) for accuracy in evaluation.accuracy_by_seed],
        "protocol": protocol,
        "evaluation_steps": evaluation.steps,
        "parameters": chosen,
        "cpu_seconds": seconds | {"evaluation": round(evaluation.cpu_seconds)},
    }


def make_missing(rows: Iterable[Any], made: Callable[[Any], dict[str, Any]], file: Path) -> None:
    """A line of JSON for every row that the file has none of yet."""
    commit = _commit()  # of the code that is loaded, whatever becomes of the files meanwhile
    done = [json.loads(line)["row"] for line in file.read_text().splitlines()] if file.exists() else []
    for row in rows:
        if vars(row) not in done:
            line = json.dumps({"row": vars(row), **made(row), "commit": commit})
            print(line, flush=True)
            with file.open("a") as stream:
                stream.write(line + "\n")


def split_records(data: Path, classes: int, held_out: bool) -> tuple[Records, Records]:
    """To train and to test with; held out are a sixth of the training records, and the test set is left alone."""
    declared = {} if str(data) == "digits" else {"classes": classes}
    train = load(str(data), split="train", **declared)
    if not held_out:
        return train, load(str(data), split="test", **declared)
    order = np.random.default_rng(0).permutation(len(train))
    return train.take(order[len(train) // 6 :]), train.take(order[: len(train) // 6])


def draw(product: Product, like: Records, file: Path) -> None:
    records = product.records(like.schema)
    names = [str(label) for label in range(like.schema.classes)]
    contact_sheet(records.features, records.labels, names).save(file)


def table(rows: list[dict[str, Any]], scores: Scores) -> str:
    """Means and deviations over seeds, in per cent, and the recipe's CPU seconds."""
    found: dict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        names = [name for name in row["row"] if name not in ("seed", "held_out")]
        found[tuple(str(row["row"][name]) for name in names)].append(row)
    heads = [*(name.replace("_", " ") for name in names), "seeds", *scores, "CPU s"]
    lines = [heads, ["-"] * len(heads)]
    for setting, group in sorted(found.items()):
        seconds = np.mean([_making(row["cpu_seconds"]) for row in group])
        summaries = [_summary([score(row) for row in group]) for score in scores.values()]
        lines.append([*setting, str(len(group)), *summaries, f"{seconds:.0f}"])
    return "\n".join(f"|{'|'.join(line)}|" for line in lines)


def _making(seconds: dict[str, int]) -> int:
    return sum(spent for what, spent in seconds.items() if what != "evaluation")


def _summary(shares: list[float | None]) -> str:
    known = 100 * np.array([share for share in shares if share is not None])
    if len(known) > 1:
        return f"{known.mean():.1f} ± {known.std(ddof=1):.1f}"
    return f"{known[0]:.1f}" if len(known) else ""


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    return subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True).stdout.strip()
