"""How a table's columns become numbers, declared in public: nothing here is ever learnt from the records."""

from __future__ import annotations

import math
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from silosynth.common.config import Section
from silosynth.common.schema import Schema

Category = str | Annotated[tuple[str, ...], Field(min_length=1)]
"""A cell's text, or several texts that mean the same."""


class Column(Section):
    """Exactly one of `bounds` (a number), `categories` (one of several texts) and `skip` says what a column holds.

    A number is cut to its bounds and scaled to [-1, 1]; a category is one-hot in {-1, 1}, with one position more
    for everything undeclared when `other` is set.
    """

    name: Annotated[str, Field(min_length=1)]
    bounds: tuple[float, float] | None = None
    categories: Annotated[tuple[Category, ...], Field(min_length=1)] | None = None
    other: bool = False
    skip: bool = False

    @model_validator(mode="after")
    def _says_one_thing(self) -> Self:
        if (self.bounds is not None) + (self.categories is not None) + self.skip != 1:
            raise ValueError(f"column {self.name!r} needs exactly one of bounds, categories and skip = true")
        if self.bounds is not None and not 0 < self.bounds[1] - self.bounds[0] < math.inf:
            raise ValueError(f"column {self.name!r}: bounds must be two finite numbers, the lower one first")
        if self.other and self.categories is None:
            raise ValueError(f"column {self.name!r}: other = true belongs to categories")
        texts = [text for _, text in self._texts()]
        if len(set(texts)) != len(texts):
            raise ValueError(f"column {self.name!r}: a text stands for two categories")
        return self

    def _texts(self) -> list[tuple[int, str]]:
        groups = [(entry,) if isinstance(entry, str) else entry for entry in self.categories or ()]
        return [(position, text) for position, group in enumerate(groups) for text in group]

    @property
    def positions(self) -> dict[str, int]:
        """Each declared text's category."""
        return {text: position for position, text in self._texts()}

    @property
    def words(self) -> list[str]:
        """What to call each category: the first of its texts."""
        declared = [entry if isinstance(entry, str) else entry[0] for entry in self.categories or ()]
        return [*declared, "(other)"] if self.other else declared

    @property
    def width(self) -> int:
        """Values a cell becomes, if the column is not skipped."""
        return 1 if self.categories is None else len(self.categories) + self.other


class TableConfig(Section):
    """A table's columns: all of them in order without a header, the named ones in any order with a header.

    `missing` says what becomes of a cell that holds one of `missing_marks` and no declared category: an error, its
    row dropped, or filled (the middle of the bounds, the category `other`).
    """

    columns: Annotated[tuple[Column, ...], Field(min_length=2)]
    label: str
    header: bool = False
    delimiter: Literal[",", ";", "\t", "|"] = ","
    comment: Annotated[str, Field(min_length=1)] | None = None
    missing: Literal["refuse", "drop", "fill"] = "refuse"
    missing_marks: tuple[str, ...] = ("?", "")

    @model_validator(mode="after")
    def _has_features_and_a_label(self) -> Self:
        names = [column.name for column in self.columns]
        if len(set(names)) != len(names):
            raise ValueError("two columns have the same name")
        if not any(column.name == self.label and column.categories for column in self.columns):
            raise ValueError(f"label = {self.label!r} must name a column with categories")
        if not self.features:
            raise ValueError("no column is left for the features")
        return self

    @property
    def label_column(self) -> Column:
        return next(column for column in self.columns if column.name == self.label)

    @property
    def features(self) -> tuple[Column, ...]:
        return tuple(column for column in self.columns if column.name != self.label and not column.skip)

    @property
    def record_schema(self) -> Schema:
        return Schema((sum(column.width for column in self.features),), self.label_column.width)
