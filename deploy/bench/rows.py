"""Rows: what came out of one run, with whose code, where, and what it took. Made once, kept line by line."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator
from pathlib import Path

from pydantic import ValidationError

from silosynth.common.config import Section
from silosynth.common.errors import ConfigError
from silosynth.deploy.bench.matrix import Cell, Matrix
from silosynth.server.attacks.report import Machine

ROWS = "rows.jsonl"


class Row(Section):
    key: str  # of everything that decides what comes out
    cell: Cell
    accuracy: float
    accuracy_by_silo: tuple[float, ...] = ()  # of the baseline `alone`, whose accuracy is their mean
    own_classifier_accuracy: float | None = None
    worst_class_accuracy: float | None = None
    calibration_error: float | None = None
    distance: float | None = None
    coverage: float | None = None
    synthetic_records: int | None = None
    silo_seconds: float | None = None  # processor time of one silo that worked, on average
    silos_at_work: int | None = None  # None: all of them
    server_seconds: float  # of everything that is not done at silos, training of models left out
    evaluation_seconds: float
    sent_bytes: int | None = None  # by each silo, as 8-byte integers before packing
    server_peak_bytes: int | None = None  # resident memory, where the server had a process of its own
    server_idle_bytes: int | None = None  # of the same process before the first question
    made: str  # when
    commit: str | None
    machine: Machine

    @property
    def cpu_seconds(self) -> float:
        """Of everybody together."""
        asked = self.silos_at_work or self.cell.silos - (self.cell.without is not None)
        return asked * (self.silo_seconds or 0.0) + self.server_seconds + self.evaluation_seconds


class Notebook:
    """The file of rows in a folder. A line that was cut by a kill is made again."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / ROWS

    def rows(self) -> list[Row]:
        return list(self._read())

    def missing(self, matrix: Matrix, only: Collection[str] | None = None) -> list[Cell]:
        """All cells, or those of these datasets and ways; whichever kind is not named counts as a whole."""
        if unknown := set(only or ()) - {*matrix.datasets, *matrix.ways}:
            raise ConfigError(f"--only {unknown.pop()}: choose among {', '.join((*matrix.datasets, *matrix.ways))}")
        datasets, ways = (
            {name for name in names if name in (only or ())} or set(names) for names in (matrix.datasets, matrix.ways)
        )
        known = {row.key for row in self._read()}
        chosen = (cell for cell in matrix.cells() if cell.dataset in datasets and cell.way in ways)
        return [cell for cell in chosen if key_of(matrix, cell) not in known]

    def rows_of(self, matrix: Matrix) -> list[Row]:
        """Those of this matrix, in its order; the file may hold others."""
        known = {row.key: row for row in self._read()}
        keys = (key_of(matrix, cell) for cell in matrix.cells())
        return [known[key] for key in keys if key in known]

    def add(self, row: Row) -> None:
        whole = self._path.exists() and not self._path.read_bytes().endswith(b"\n")
        with self._path.open("a") as file:
            file.write(("\n" if whole else "") + row.model_dump_json() + "\n")

    def _read(self) -> Iterator[Row]:
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        for number, line in enumerate(lines, start=1):
            try:
                document = json.loads(line)
            except json.JSONDecodeError:
                continue  # cut by a kill
            try:
                yield Row.model_validate(document)
            except ValidationError as error:
                raise ConfigError(f"{self._path}, line {number}: no row of this version: use another --out") from error


def key_of(matrix: Matrix, cell: Cell) -> str:
    """Of data, recipe, parameters, budget, evaluation: when one of them changes, the row is made anew.

    What is as usual is left out, so that a setting that silosynth gains makes no old row worthless.
    """
    entry = matrix.recipe_of(cell)
    parts = [
        cell.model_dump_json(exclude_defaults=True),
        matrix.datasets[cell.dataset].model_dump_json(exclude={"seeds"}, exclude_defaults=True),
        "" if entry is None else entry.model_dump_json(exclude={"words"}, exclude_defaults=True),
        matrix.evaluation.model_dump_json(exclude_defaults=True),
        f"{matrix.delta!r} {matrix.apart}",
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
