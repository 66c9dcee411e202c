"""From a description of a data source, or just its path, to records."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from silosynth.common.config import parse
from silosynth.common.datasets import cifar, csv_table, digits, idx, image_folder, npz
from silosynth.common.datasets.data_config import DataConfig
from silosynth.common.datasets.files import parsing, reading
from silosynth.common.datasets.records import Records
from silosynth.common.errors import DataError

COMMON_OPTIONS = {"source", "path", "split", "classes"}


@dataclass(frozen=True)
class Format:
    recognises: Callable[[Path], bool]
    read: Callable[[Path, DataConfig], Records]
    options: frozenset[str] = frozenset()


FORMATS = {
    "digits": Format(digits.recognises, digits.read),
    "npz": Format(npz.recognises, npz.read),
    "idx": Format(idx.recognises, idx.read, frozenset({"transpose", "first_label"})),
    "cifar": Format(cifar.recognises, cifar.read),
    "csv": Format(csv_table.recognises, csv_table.read, frozenset({"table"})),
    "images": Format(image_folder.recognises, image_folder.read, frozenset({"size", "colour"})),
}


def load(where: str | Path, /, **options: Any) -> Records:
    """Records at a path, or "digits"; `options` are the fields of DataConfig.

    A TOML file tells of the records in its [data] table, as silo.toml does: CSV needs one.
    """
    place, base = {"source": "digits"} if where == "digits" else {"path": where}, Path()
    if Path(where).suffix == ".toml":
        place, base = _described(Path(where)), Path(where).parent
    return load_records(parse(DataConfig, place | options, str(where)), base)


def _described(file: Path) -> dict[str, Any]:
    with reading(file), parsing("is no TOML file"):
        document = tomllib.loads(file.read_text())
    if not isinstance(table := document.get("data"), dict):
        raise DataError(f"{file}: has no [data] table that tells where the records are and what is in them")
    return table


def load_records(config: DataConfig, base: Path) -> Records:
    """`base` is the folder of the TOML file, to which a relative path relates."""
    path = base / (config.path or Path("digits")).expanduser()
    with reading(path):
        name = config.source if config.path is None else _recognise(path, config.source)
        _refuse_foreign_options(name, config)
    records = FORMATS[name].read(path, config)
    if config.class_count not in (None, records.schema.classes):
        raise DataError(f"{path}: has {records.schema.classes} classes, but `classes` declares {config.class_count}")
    return records


def _recognise(path: Path, source: str) -> str:
    path.stat()  # a missing file is told before anything else
    if source != "auto":
        return source
    for name, form in FORMATS.items():
        if form.recognises(path):
            return name
    raise DataError(f"is of no format known by its name: set `source` to one of {', '.join(FORMATS)}")


def _refuse_foreign_options(name: str, config: DataConfig) -> None:
    """An option without effect is a misunderstanding that would go unnoticed."""
    said = config.model_dump(exclude_defaults=True).keys()
    if foreign := said - COMMON_OPTIONS - FORMATS[name].options:
        raise DataError(f"{', '.join(sorted(foreign))} mean nothing to source {name!r}: leave them out")
