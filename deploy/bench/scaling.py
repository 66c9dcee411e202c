"""How time grows with silos and with records: exponents fitted to the rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np

from silosynth.deploy.bench.rows import Row

_FEWEST_SIZES = 3
Figure = Callable[[Row], float | None]

_LAWS: tuple[tuple[str, Figure, str, Figure], ...] = (
    ("server time", lambda row: row.server_seconds, "silos", lambda row: row.cell.silos),
    ("a silo's time", lambda row: row.silo_seconds, "records of a silo", lambda row: row.cell.records),
    ("server time", lambda row: row.server_seconds, "records of a silo", lambda row: row.cell.records),
)


def scaling_section(rows: Sequence[Row]) -> str:
    """Empty unless some way was run at three sizes or more."""
    ways = list(dict.fromkeys((row.cell.dataset, row.cell.way) for row in rows if row.silo_seconds is not None))
    lines = []
    for dataset, way in ways:
        here = [row for row in rows if (row.cell.dataset, row.cell.way) == (dataset, way) and row.cell.without is None]
        for what, taken, against, size in _LAWS:
            exponent = fitted_exponent([(size(row), taken(row)) for row in here])
            if exponent is not None:
                lines.append(f"- {way} on {dataset}: {what} grows like ({against}) to the power {exponent:.2f}")
    return "## Scaling\n\nFitted to processor time:\n\n" + "\n".join(lines) if lines else ""


def fitted_exponent(points: Sequence[tuple[float | None, float | None]]) -> float | None:
    """By least squares of logarithms, of the mean at each size; None for fewer than three sizes."""
    taken: dict[float, list[float]] = defaultdict(list)
    for size, seconds in points:
        if size and seconds and seconds > 0:
            taken[size].append(seconds)
    if len(taken) < _FEWEST_SIZES:
        return None
    sizes = sorted(taken)
    return float(np.polyfit(np.log(sizes), [np.log(np.mean(taken[size])) for size in sizes], 1)[0])
