"""What the missing runs of a matrix will cost, judging by those that were made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from rich.table import Table

from silosynth.common.config import Section
from silosynth.deploy.bench.matrix import Cell
from silosynth.deploy.bench.rows import Row


class Share(Section):
    dataset: str
    way: str
    missing: int
    seconds_each: float | None  # of processor time, the mean of such runs; None: none was made yet


class Estimate(Section):
    missing: int
    unknown: int  # of the missing, those of a kind that was never run
    seconds: float  # of processor time, for the others
    shares: tuple[Share, ...]


def estimate(missing: Sequence[Cell], made: Sequence[Row]) -> Estimate:
    counts = Counter((cell.dataset, cell.way) for cell in missing)
    shares = tuple(
        Share(dataset=dataset, way=way, missing=count, seconds_each=_mean_cost(dataset, way, made))
        for (dataset, way), count in counts.items()
    )
    return Estimate(
        missing=len(missing),
        unknown=sum(share.missing for share in shares if share.seconds_each is None),
        seconds=round(sum(share.missing * (share.seconds_each or 0.0) for share in shares), 1),
        shares=shares,
    )


def _mean_cost(dataset: str, way: str, made: Sequence[Row]) -> float | None:
    costs = [row.cpu_seconds for row in made if (row.cell.dataset, row.cell.way) == (dataset, way)]
    return round(float(np.mean(costs)), 1) if costs else None


def estimate_table(found: Estimate) -> tuple[Table, str]:
    table = Table("dataset", "way", "runs missing", "CPU s each", "CPU min")
    for share in found.shares:
        each = share.seconds_each
        costs = ("not run yet", "") if each is None else (f"{each:.1f}", f"{share.missing * each / 60:.1f}")
        table.add_row(share.dataset, share.way, str(share.missing), *costs)
    words = f"{found.missing} runs are missing: about {found.seconds / 60:.0f} minutes of one processor"
    if found.unknown:
        words += f" for {found.missing - found.unknown} of them; what the others cost is known once one of each was run"
    return table, f"{words}."
