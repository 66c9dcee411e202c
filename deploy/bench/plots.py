"""Accuracy beside epsilon, one panel for each way the records are dealt."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from silosynth.deploy.bench.matrix import NOT_PRIVATE, POOLED, PRIVATE, Matrix
from silosynth.deploy.bench.rows import Row
from silosynth.server.evaluation.plots import save_figure

if TYPE_CHECKING:  # it takes seconds to import
    from matplotlib.axes import Axes

_MARKS = "osv^D*Px"


def plot_dataset(matrix: Matrix, dataset: str, rows: Sequence[Row], stem: Path) -> tuple[Path, Path]:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    settings = list(dict.fromkeys(row.cell.setting for row in rows if row.cell.way != POOLED))
    with rc_context({"svg.hashsalt": "silosynth", "font.size": 9}):
        figure = Figure(figsize=(1 + 4.2 * len(settings), 3.8), layout="constrained")
        panels = figure.subplots(1, len(settings), sharey=True, squeeze=False)[0]
        for axes, setting in zip(panels, settings, strict=True):
            here = [row for row in rows if row.cell.setting == setting and row.cell.without is None]
            for number, way in enumerate(matrix.private_ways):
                _line(axes, way, [row for row in here if row.cell.way == way], number)
            for way, style in zip(NOT_PRIVATE, ("-", ":", "--"), strict=True):
                shares = [row.accuracy for row in (rows if way == POOLED else here) if row.cell.way == way]
                if shares:
                    level = 100 * float(np.mean(shares))
                    axes.axhline(level, color="grey", linestyle=style, label=f"{way}, not private")
            axes.set(xscale="log", xlabel="epsilon of each silo", title=f"{dataset}: {setting}")
            ticks = sorted({row.cell.epsilon for row in here if row.cell.epsilon is not None})
            axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            axes.minorticks_off()
        panels[0].set(ylabel="accuracy, per cent")
        panels[-1].legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
        return save_figure(figure, stem)


def _line(axes: Axes, way: str, rows: Sequence[Row], number: int) -> None:
    budgets = sorted({row.cell.epsilon for row in rows if row.cell.epsilon is not None})
    groups = [[100 * row.accuracy for row in rows if row.cell.epsilon == budget] for budget in budgets]
    if groups:
        means, spreads = [np.mean(group) for group in groups], [np.std(group, ddof=len(group) > 1) for group in groups]
        mark, line = _MARKS[number % len(_MARKS)], ":" if way in PRIVATE else "-"
        axes.errorbar(budgets, means, spreads, capsize=3, label=way, marker=mark, linestyle=line)
