"""CSV tables of numbers and categories, encoded by what their config declares."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from itertools import filterfalse, islice, repeat
from operator import methodcaller
from pathlib import Path
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from silosynth.common.datasets.data_config import DataConfig
from silosynth.common.datasets.files import reading
from silosynth.common.datasets.records import Features, Labels, Records
from silosynth.common.datasets.table_config import Column, TableConfig
from silosynth.common.errors import DataError

SUFFIXES = (".csv", ".tsv", ".txt", ".data", ".test")
ROWS_AT_ONCE = 1 << 14
UNKNOWN = -1

Row = list[str]
Mask = npt.NDArray[np.bool_]


def recognises(path: Path) -> bool:
    return path.is_file() and path.suffix.lower() in SUFFIXES


def read(path: Path, config: DataConfig) -> Records:
    with reading(path):
        config.refuse_split()
        if config.table is None:
            raise DataError("a table's columns must be declared: add `table` with `columns` and `label`")
        if path.stat().st_size == 0:
            raise DataError("is empty: check `path`")
        try:
            return Records(*_read_table(path, config.table), config.table.record_schema)
        except (csv.Error, UnicodeDecodeError):
            raise DataError("is no UTF-8 table with this delimiter: check its encoding and quotes") from None


def _read_table(path: Path, table: TableConfig) -> tuple[Features, Labels]:
    features = [np.empty((0, *table.record_schema.shape), dtype=np.float32)]
    labels = [np.empty(0, dtype=np.int64)]
    with path.open(newline="", encoding="utf-8-sig") as lines:
        kept = filterfalse(methodcaller("startswith", table.comment), lines) if table.comment else lines
        rows = filter(None, csv.reader(kept, delimiter=table.delimiter, skipinitialspace=True, strict=True))
        names = _column_names(rows, table)
        for start, chunk in _chunks(rows, len(names)):
            encoded = _Encoder(table, start).encode(dict(zip(names, zip(*chunk, strict=True), strict=True)))
            features.append(encoded[0])
            labels.append(encoded[1])
    return np.concatenate(features), np.concatenate(labels)


def _column_names(rows: Iterator[Row], table: TableConfig) -> list[str]:
    if not table.header:
        return [column.name for column in table.columns]
    names = [name.strip() for name in next(rows, [])]
    for column in (*table.features, table.label_column):
        if names.count(column.name) != 1:
            raise DataError(f"its header must name column {column.name!r} exactly once: check `columns` and `header`")
    return names


def _chunks(rows: Iterator[Row], width: int) -> Iterator[tuple[int, list[Row]]]:
    """Rows in bounded numbers, each with the count of rows before it."""
    start = 0
    while chunk := list(islice(rows, ROWS_AT_ONCE)):
        uneven = np.fromiter(map(len, chunk), np.int64, len(chunk)) != width
        if uneven.any():
            raise DataError(f"record {start + int(uneven.argmax()) + 1} does not have {width} columns: check the file")
        yield start, chunk
        start += len(chunk)


class _Encoder:
    """Encodes one chunk. Errors tell a record's number, never what it holds."""

    def __init__(self, table: TableConfig, start: int) -> None:
        self.table = table
        self.start = start

    def encode(self, cells: dict[str, Sequence[str]]) -> tuple[Features, Labels]:
        texts = {column.name: list(map(str.strip, cells[column.name])) for column in self._used}
        missing = {column.name: self._missing(column, texts[column.name]) for column in self._used}
        keep = ~np.logical_or.reduce(list(missing.values())) if self.table.missing == "drop" else slice(None)
        blocks = [
            self._one_hot(column, texts[column.name], missing[column.name])
            if column.bounds is None
            else self._number(column, column.bounds, texts[column.name], missing[column.name])
            for column in self.table.features
        ]
        label = self.table.label_column
        codes = self._codes(label, texts[label.name], missing[label.name])
        return np.concatenate(blocks, axis=1)[keep], codes[keep]

    @property
    def _used(self) -> tuple[Column, ...]:
        return (*self.table.features, self.table.label_column)

    def _missing(self, column: Column, texts: list[str]) -> Mask:
        marks = set(self.table.missing_marks).difference(column.positions)
        mask = np.fromiter(map(marks.__contains__, texts), np.bool_, len(texts))
        cannot_fill = column.categories is not None and not column.other
        if mask.any() and (self.table.missing == "refuse" or (self.table.missing == "fill" and cannot_fill)):
            self._fail(column, mask, 'has no value: set missing = "drop", or "fill" (categories need other = true)')
        return mask

    def _number(self, column: Column, bounds: tuple[float, float], texts: list[str], missing: Mask) -> Features:
        low, high = bounds
        values = np.fromiter(map(_number_or_nan, texts), np.float64, len(texts))
        values[missing] = low + (high - low) / 2
        if not (finite := np.isfinite(values)).all():
            self._fail(column, ~finite, "is not a finite number: correct it, or list its text in missing_marks")
        scaled = (np.clip(values, low, high) - low) / (high - low) * 2 - 1
        return scaled.astype(np.float32)[:, None]

    def _one_hot(self, column: Column, texts: list[str], missing: Mask) -> Features:
        codes = self._codes(column, texts, missing)
        return np.where(codes[:, None] == np.arange(column.width), np.float32(1), np.float32(-1))

    def _codes(self, column: Column, texts: list[str], missing: Mask) -> Labels:
        codes = np.fromiter(map(column.positions.get, texts, repeat(UNKNOWN)), np.int64, len(texts))
        if column.other:
            codes[codes == UNKNOWN] = column.width - 1
        if (unknown := (codes == UNKNOWN) & ~missing).any():
            self._fail(column, unknown, "is of no declared category: declare it, or set other = true")
        return codes

    def _fail(self, column: Column, mask: Mask, complaint: str) -> NoReturn:
        raise DataError(f"record {self.start + int(mask.argmax()) + 1}: column {column.name!r} {complaint}")


def _number_or_nan(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")
