"""The page of results: what came out, for a newcomer, and every row behind it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from silosynth.deploy.bench.matrix import ALONE, DP_SGD, FEDAVG, NOT_PRIVATE, POOLED, Cell, Matrix
from silosynth.deploy.bench.plots import plot_dataset
from silosynth.deploy.bench.rows import Row
from silosynth.deploy.bench.scaling import scaling_section
from silosynth.server.evaluation.baselines import DP_FEDAVG

PAGE = "README.md"
_MOST_PANELS = 4

_LEGEND = (
    "Accuracy in per cent on public test records of fresh models that saw nothing but the synthetic records: mean and "
    "standard deviation over seeds, which decide partition and recipe; the noise is drawn anew in every run. "
    "In brackets: the recipe's own classifier, where it has one. Bold: the best synthetic records. "
    "Epsilon holds for each silo's records (one record added or removed): the smaller, the more private."
)
_WORDS = {
    POOLED: "a model of all real records in one place, not private: the ceiling",
    ALONE: "a model of each silo's own real records, not private: the mean over silos, the worst and the best of them",
    FEDAVG: "federated averaging: silos train one model together, not private, no synthetic records",
    DP_SGD: "a model of the first silo's own records alone, by private training (Opacus); no synthetic records",
    DP_FEDAVG: "silos train one ConvNet together by noisy sums of clipped gradients; no synthetic records",
}


def write_page(matrix: Matrix, rows: Sequence[Row], folder: Path) -> Path:
    """The page with its pictures; settings that are not run yet are left empty."""
    parts = [f"# {matrix.title}", matrix.words, f"{_LEGEND} Delta is {matrix.delta:g}.", _progress(matrix, rows)]
    parts += ["## What is compared", _ways(matrix)]
    for dataset in matrix.datasets:
        here = [row for row in rows if row.cell.dataset == dataset]
        if not here:
            continue
        parts += [f"## {dataset}", _table(matrix, here)]
        settings = {row.cell.setting for row in here if row.cell.epsilon}
        if 1 <= len(settings) <= _MOST_PANELS:
            plot_dataset(matrix, dataset, here, folder / dataset)
            parts.append(f"![accuracy beside epsilon on {dataset}]({dataset}.png)")
        parts.append(_left_out(here))
    parts += [scaling_section(rows, folder), "## Every run", _all_rows(rows)]
    path = folder / PAGE
    path.write_text("\n\n".join(part for part in parts if part) + "\n")
    return path


def _progress(matrix: Matrix, rows: Sequence[Row]) -> str:
    wanted, minutes = sum(1 for _ in matrix.cells()), sum(row.cpu_seconds for row in rows) / 60
    again = f"`silosynth bench {matrix.file_name} --out FOLDER` makes this page, in {minutes:.0f} min of one processor."
    versions = {row.commit for row in rows}
    if len(versions) > 1:
        again += f" Rows are of {len(versions)} versions of the code: the last table tells which."
    if len(rows) == wanted:
        return again
    return f"{again} {len(rows)} of {wanted} runs are made so far: the same command goes on with the others."


def _ways(matrix: Matrix) -> str:
    words = _WORDS | {name: entry.words or f"the recipe {entry.recipe}" for name, entry in matrix.recipes.items()}
    lines = []
    for way in matrix.ways:
        entry = matrix.recipes.get(way)
        chosen = ", ".join(f"{name} = {value}" for name, value in entry.parameters.items()) if entry else ""
        lines.append(f"- **{way}**: {words[way]}" + (f" ({chosen})" if chosen else ""))
    return "\n".join(lines)


def _mean_and_spread(shares: Sequence[float]) -> str:
    known = 100 * np.array(shares)
    if not len(known):
        return ""
    return f"{known.mean():.1f}" + (f" ± {known.std(ddof=1):.1f}" if len(known) > 1 else "")


def _table(matrix: Matrix, rows: Sequence[Row]) -> str:
    """Ways beside settings and epsilons, whichever are fewer as columns."""
    columns = list(
        dict.fromkeys((row.cell.setting, row.cell.budget) for row in rows if row.cell.way in matrix.private_ways)
    ) or list(dict.fromkeys((row.cell.setting, row.cell.budget) for row in rows))
    grid = [[[row for row in rows if _belongs(row.cell, way, *column)] for column in columns] for way in matrix.ways]
    best = [_best([cells[number] for cells in grid]) for number in range(len(columns))]
    words = [[_cell(cell, bold=cell is most) for cell, most in zip(cells, best, strict=True)] for cells in grid]
    settings = [", ".join(column) for column in columns]
    if len(columns) <= len(grid):
        return _markdown(["way", *settings], [[way, *line] for way, line in zip(matrix.ways, words, strict=True)])
    return _markdown(["records, privacy", *matrix.ways], list(zip(settings, *words, strict=True)))


def _best(cells: Sequence[Sequence[Row]]) -> Sequence[Row] | None:
    """The runs of the recipe whose records teach most, if there are several to compare."""
    made = [rows for rows in cells if any(row.synthetic_records for row in rows)]
    return max(made, key=lambda rows: np.mean([row.accuracy for row in rows])) if len(made) > 1 else None


def _belongs(cell: Cell, way: str, setting: str, budget: str) -> bool:
    if cell.way != way or cell.without is not None:
        return False
    return way == POOLED or (cell.setting == setting and (way in NOT_PRIVATE or cell.budget == budget))


def _cell(rows: Sequence[Row], bold: bool) -> str:
    own = [row.own_classifier_accuracy for row in rows if row.own_classifier_accuracy is not None]
    found = _mean_and_spread([row.accuracy for row in rows])
    if alone := [accuracy for row in rows for accuracy in row.accuracy_by_silo]:
        return f"{found} ({100 * min(alone):.1f} to {100 * max(alone):.1f})"
    return (f"**{found}**" if bold else found) + (f" ({_mean_and_spread(own)})" if own else "")


def _left_out(rows: Sequence[Row]) -> str:
    """What the federation loses without a silo: that is the silo's worth to the others."""
    whole = {_key(row.cell): row.accuracy for row in rows if row.cell.without is None}
    losses: dict[tuple[str, str, str, int], list[float]] = defaultdict(list)
    for row in rows:
        cell = row.cell
        if cell.without is not None and _key(cell) in whole:
            losses[cell.way, cell.setting, cell.budget, cell.without].append(whole[_key(cell)] - row.accuracy)
    if not losses:
        return ""
    lines = [[*map(str, place), _mean_and_spread(found)] for place, found in losses.items()]
    return "Points that are lost without a silo:\n\n" + _markdown(["way", "records", "privacy", "silo", "loss"], lines)


def _key(cell: Cell) -> str:
    return cell.model_copy(update={"without": None}).model_dump_json()


def _all_rows(rows: Sequence[Row]) -> str:
    heads = ["run", "accuracy", "own", "worst class", "calibration error", "coverage"]
    heads += ["CPU s: a silo", "server", "evaluation", "server MB", "commit", "machine"]
    return _markdown(heads, [_line(row) for row in rows])


def _line(row: Row) -> list[str]:
    shares = (row.accuracy, row.own_classifier_accuracy, row.worst_class_accuracy, row.calibration_error, row.coverage)
    seconds = (row.silo_seconds, row.server_seconds, row.evaluation_seconds)
    return [
        row.cell.words(),
        *("" if share is None else f"{100 * share:.1f}" for share in shares),
        *("" if second is None else f"{second:.2f}" for second in seconds),
        "" if row.server_peak_bytes is None else f"{row.server_peak_bytes / 1e6:.0f}",
        row.commit or "",
        f"{row.machine.processor}, {row.machine.cores} cores",
    ]


def _markdown(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rows = [heads, ["---"] * len(heads), *lines]
    return "\n".join(f"| {' | '.join(cell.replace('|', ' ') for cell in row)} |" for row in rows)
