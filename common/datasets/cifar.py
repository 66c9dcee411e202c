"""CIFAR-10 and CIFAR-100 in their binary versions. The Python versions are pickles, which run code when read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from silosynth.common.datasets.data_config import DataConfig
from silosynth.common.datasets.files import reading
from silosynth.common.datasets.records import Records
from silosynth.common.errors import DataError
from silosynth.common.schema import Schema

PIXELS = 3 * 32 * 32
PICKLE_PROTOCOL = 0x80
"""First byte of a pickle; in the binary version it would be a label out of range."""
PICKLED_NAMES = ("batches.meta", "data_batch_1", "test_batch", "meta")


@dataclass(frozen=True)
class Variant:
    classes: int
    label_bytes: int
    patterns: dict[str, str]


# A CIFAR-100 record begins with two labels: one of 20 groups, then one of 100 classes.
VARIANTS = (
    Variant(10, 1, {"train": "data_batch_*.bin", "test": "test_batch.bin"}),
    Variant(100, 2, {"train": "train.bin", "test": "test.bin"}),
)


def recognises(path: Path) -> bool:
    if path.is_file():
        return path.suffix == ".bin" or path.name in PICKLED_NAMES
    return any(entry.suffix == ".bin" or entry.name in PICKLED_NAMES for entry in path.iterdir() if entry.is_file())


def read(path: Path, config: DataConfig) -> Records:
    with reading(path):
        variant, files = _find(path, config)
    batches = [_read_batch(file, variant) for file in files]
    features, labels = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    with reading(path):
        return Records(features, labels.astype(np.int64), Schema((32, 32, 3), variant.classes))


def _find(path: Path, config: DataConfig) -> tuple[Variant, list[Path]]:
    if not path.is_dir():
        config.refuse_split()
        return _variant_of(path, config.class_count), [path]
    for variant in VARIANTS:
        if files := sorted(path.glob(variant.patterns[config.split or "train"])):
            return variant, files
    if any((path / name).exists() for name in PICKLED_NAMES):
        raise _pickled()
    raise DataError("holds no data_batch_*.bin, test_batch.bin, train.bin or test.bin for this split: check `path`")


def _variant_of(file: Path, classes: int | None) -> Variant:
    for variant in VARIANTS:
        if classes == variant.classes or any(file.match(pattern) for pattern in variant.patterns.values()):
            return variant
    if file.name in PICKLED_NAMES:
        raise _pickled()
    raise DataError("could be CIFAR-10 or CIFAR-100: declare `classes` as 10 or 100")


def _read_batch(file: Path, variant: Variant) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    with reading(file):
        rows = np.fromfile(file, dtype=np.uint8)
        if rows.size and rows[0] == PICKLE_PROTOCOL:
            raise _pickled()
        width = variant.label_bytes + PIXELS
        if rows.size == 0 or rows.size % width:
            raise DataError(f"is empty or no multiple of {width} bytes long: fetch the file again")
        rows = rows.reshape(-1, width)
        planes = rows[:, variant.label_bytes :].reshape(-1, 3, 32, 32)
        return np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), rows[:, variant.label_bytes - 1]


def _pickled() -> DataError:
    return DataError("is the Python version of CIFAR, a pickle, which could run code: fetch the binary version (*.bin)")
