"""Where records come from: the [data] table of a TOML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from silosynth.common.config import Section
from silosynth.common.datasets.table_config import TableConfig
from silosynth.common.errors import DataError, OneSetOnly
from silosynth.common.schema import MAX_CLASSES

Side = Annotated[int, Field(strict=True, ge=1, le=4096)]


class DataConfig(Section):
    """One set of records and what is publicly known of it.

    `classes`, a number or the classes' names, must be declared for idx and npz: the largest label is private.
    An image folder's subfolders are its classes unless `classes` names them; name them wherever a silo may lack one,
    so that all silos count alike.
    """

    source: Literal["auto", "digits", "idx", "cifar", "npz", "images", "csv"] = "auto"
    path: Path | None = None
    split: Literal["train", "test"] | None = None
    """Only for sources that hold both; they are read as "train" where nothing is said."""
    classes: Annotated[int, Field(strict=True, ge=1, le=MAX_CLASSES)] | tuple[str, ...] | None = None
    transpose: bool = False
    """idx: rows and columns are swapped in the file (EMNIST)."""
    first_label: Annotated[int, Field(strict=True, ge=0)] = 0
    """idx: what the file calls class 0 (EMNIST letters: 1)."""
    size: tuple[Side, Side] | None = None
    """images: resize to this height and width."""
    colour: bool | None = None
    """images: read as colour or as grey; as the files are where nothing is said, if they are all alike."""
    table: TableConfig | None = None
    """csv: the columns."""

    @model_validator(mode="after")
    def _has_a_path_unless_embedded(self) -> Self:
        if (self.source == "digits") != (self.path is None):
            raise ValueError('path is needed, except with source = "digits", which is embedded')
        if isinstance(self.classes, tuple) and not len(set(self.classes) - {""}) == len(self.classes) >= 1:
            raise ValueError("classes must be at least one name, all different and none empty")
        return self

    @property
    def class_count(self) -> int | None:
        return len(self.classes) if isinstance(self.classes, tuple) else self.classes

    def declared_classes(self) -> int:
        if self.class_count is None:
            raise DataError("declare `classes`: counting the labels would be a query on private records")
        return self.class_count

    def refuse_split(self) -> None:
        """For sources that turn out to be one set: the wrong set must not pass as the one asked for."""
        if self.split is not None:
            raise OneSetOnly(f"holds one set of records, no {self.split!r} split: leave out `split`")
