"""How time and memory grow with silos and with records: exponents fitted to the rows, and their curves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from silosynth.deploy.bench.rows import Row
from silosynth.server.evaluation.plots import save_figure

PICTURE = "scaling"
_FEWEST_SIZES = 3
Figure = Callable[[Row], float | None]
Points = list[tuple[float, float]]


@dataclass(frozen=True)
class Law:
    what: str
    unit: str
    measured: Figure
    against: str
    size: Figure
    others: Figure  # must be the same for all points


def _megabytes(row: Row) -> float | None:
    return None if row.server_peak_bytes is None else row.server_peak_bytes / 1e6


def _silos(row: Row) -> float:
    return row.cell.silos


def _records(row: Row) -> float | None:
    return row.cell.records


LAWS = (
    Law("server time", "CPU s", lambda row: row.server_seconds, "silos", _silos, _records),
    Law("server memory", "peak MB", _megabytes, "silos", _silos, _records),
    Law("a silo's time", "CPU s", lambda row: row.silo_seconds, "records of a silo", _records, _silos),
    Law("server time", "CPU s", lambda row: row.server_seconds, "records of a silo", _records, _silos),
    Law("server memory", "peak MB", _megabytes, "records of a silo", _records, _silos),
)


def scaling_section(rows: Sequence[Row], folder: Path) -> str:
    """Empty unless some way was run at three sizes or more, with sizes of silos that somebody chose."""
    curves = list(_curves([row for row in rows if row.cell.records is not None and row.cell.without is None]))
    if not curves:
        return ""
    _plot(curves, folder / PICTURE)
    lines = [
        f"- {way}: {law.what} grows like ({law.against}) to the power {fitted_exponent(points):.2f}, "
        f"from {points[0][1]:.3g} to {points[-1][1]:.3g} {law.unit} for {points[0][0]:g} to {points[-1][0]:g}"
        for law, way, points in curves
    ]
    return f"## Scaling\n\nExponents fitted to what was measured:\n\n{chr(10).join(lines)}\n\n![curves]({PICTURE}.png)"


def _curves(rows: Sequence[Row]) -> Iterator[tuple[Law, str, Points]]:
    kinds = list(dict.fromkeys((row.cell.dataset, row.cell.way) for row in rows if row.silo_seconds is not None))
    for law in LAWS:
        for dataset, way in kinds:
            here = [row for row in rows if (row.cell.dataset, row.cell.way) == (dataset, way)]
            for other in dict.fromkeys(map(law.others, here)):
                points = _means((law.size(row), law.measured(row)) for row in here if law.others(row) == other)
                if len(points) >= _FEWEST_SIZES:
                    yield law, f"{way} on {dataset}", points


def _means(points: Iterator[tuple[float | None, float | None]]) -> Points:
    """Of all that was measured at one size; nothing for what took no time."""
    taken: dict[float, list[float]] = defaultdict(list)
    for size, figure in points:
        if size and figure and figure > 0:
            taken[size].append(figure)
    return [(size, float(np.mean(taken[size]))) for size in sorted(taken)]


def fitted_exponent(points: Points) -> float:
    """By least squares of logarithms."""
    sizes, figures = np.log(np.array(points)).T
    return float(np.polyfit(sizes, figures, 1)[0])


def _plot(curves: Sequence[tuple[Law, str, Points]], stem: Path) -> None:
    from matplotlib import rc_context
    from matplotlib.figure import Figure as Canvas

    laws = list(dict.fromkeys(law for law, _, _ in curves))
    with rc_context({"svg.hashsalt": "silosynth", "font.size": 9}):
        figure = Canvas(figsize=(0.5 + 3.6 * len(laws), 3.4), layout="constrained")
        for axes, law in zip(figure.subplots(1, len(laws), squeeze=False)[0], laws, strict=True):
            for here, way, points in curves:
                if here is law:
                    label = f"{way}: power {fitted_exponent(points):.2f}"
                    axes.plot(*zip(*points, strict=True), marker="o", label=label)
            axes.set(xscale="log", yscale="log", xlabel=law.against, ylabel=f"{law.what}, {law.unit}")
            axes.set_ylim(bottom=min(axes.get_ylim()[0], 1e-3) if law.unit == "CPU s" else 10)
            axes.legend(fontsize=7)
        save_figure(figure, stem)
