"""data/train.csv: the rows of a synthetic table, in the units and words that the run declared for its columns."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from silosynth.common.datasets.records import Features, Records
from silosynth.common.datasets.table_config import Column, TableConfig

TABLE = "data/train.csv"
_ROWS_AT_ONCE = 4096
_LABEL = "label"


@dataclass(frozen=True)
class TableFile:
    """Without declared columns they are numbered, and their values are in [-1, 1] as the silos scaled them."""

    table: TableConfig | None
    columns: int
    classes: Sequence[str]

    @property
    def features(self) -> tuple[Column, ...]:
        if self.table is not None:
            return self.table.features
        return tuple(Column(name=f"x{number}", bounds=(-1, 1)) for number in range(1, self.columns + 1))

    @property
    def label(self) -> str:
        return _LABEL if self.table is None else self.table.label

    def write(self, path: Path, records: Records) -> None:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow([*(column.name for column in self.features), self.label])
            for features, labels in records.batches(_ROWS_AT_ONCE):
                words = [self.classes[label] for label in labels]
                writer.writerows(zip(*self._cells(features), words, strict=True))

    def _cells(self, features: Features) -> Iterator[list[str]]:
        start = 0
        for column in self.features:
            yield _decoded(column, features[:, start : start + column.width])
            start += column.width


def _decoded(column: Column, values: Features) -> list[str]:
    """The inverse of how records are encoded; of a synthetic category the strongest position counts."""
    if column.bounds is None:
        return [column.words[position] for position in values.argmax(axis=1)]
    low, high = column.bounds
    return [f"{value:.7g}" for value in low + (values[:, 0].astype(np.float64) + 1) / 2 * (high - low)]
