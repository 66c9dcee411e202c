"""IDX files as MNIST, Fashion-MNIST and EMNIST come: images beside labels, gzipped or not."""

from __future__ import annotations

import gzip
import math
from pathlib import Path
from typing import IO, cast

import numpy as np
import numpy.typing as npt

from silosynth.common.datasets.data_config import DataConfig
from silosynth.common.datasets.files import MAX_DEFLATE_RATIO, read_exactly, reading
from silosynth.common.datasets.records import Records
from silosynth.common.errors import DataError
from silosynth.common.schema import Schema

UNSIGNED_BYTE = 0x08
GZIP_MAGIC = b"\x1f\x8b"
SPLIT_MARKS = {"train": ("train",), "test": ("t10k", "test")}


def recognises(path: Path) -> bool:
    names = [path.name] if path.is_file() else [entry.name for entry in path.iterdir()]
    return any("idx1" in name or "idx3" in name for name in names)


def read(path: Path, config: DataConfig) -> Records:
    with reading(path):
        images_file = _find_images(path, config)
        labels_file = _find_labels(images_file)
    images = read_array(images_file, dimensions=3)
    labels = read_array(labels_file, dimensions=1).astype(np.int64) - config.first_label
    if config.transpose:
        images = np.ascontiguousarray(images.transpose(0, 2, 1))
    with reading(images_file):
        if len(images) != len(labels):
            raise DataError(f"does not hold as many items as {labels_file.name}: they are not a pair")
        return Records(images[..., None], labels, Schema((*images.shape[1:], 1), config.declared_classes()))


def read_array(path: Path, dimensions: int) -> npt.NDArray[np.uint8]:
    with reading(path):
        compressed = _is_gzip(path)
        with cast("IO[bytes]", gzip.open(path)) if compressed else path.open("rb") as stream:
            shape = _read_shape(stream, dimensions)
            if math.prod(shape) > path.stat().st_size * (MAX_DEFLATE_RATIO if compressed else 1):
                raise DataError("its header promises more than the file can hold: it is truncated or no IDX file")
            return read_exactly(stream, math.prod(shape)).reshape(shape)


def _is_gzip(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(len(GZIP_MAGIC)) == GZIP_MAGIC


def _read_shape(stream: IO[bytes], dimensions: int) -> tuple[int, ...]:
    header = stream.read(4 * (1 + dimensions))
    if len(header) < 4 * (1 + dimensions) or header[:4] != bytes([0, 0, UNSIGNED_BYTE, dimensions]):
        raise DataError(f"does not begin like an IDX file of bytes in {dimensions} dimensions: check `path`")
    return tuple(int(side) for side in np.frombuffer(header, dtype=">u4")[1:])


def _find_images(path: Path, config: DataConfig) -> Path:
    """`path` itself, or the folder's only images file of the split; plain before gzipped."""
    if not path.is_dir():
        config.refuse_split()
        return path
    split = config.split or "train"
    found = sorted(
        entry
        for entry in path.iterdir()
        if "images" in entry.name and "idx3" in entry.name and any(mark in entry.name for mark in SPLIT_MARKS[split])
    )
    if len({entry.name.removesuffix(".gz") for entry in found}) != 1:
        raise DataError(f"needs exactly one {split!r} file *images*idx3*: give the file itself as `path`")
    return found[0]


def _find_labels(images: Path) -> Path:
    plain = images.name.removesuffix(".gz").replace("images", "labels").replace("idx3", "idx1")
    candidates = (images.with_name(plain), images.with_name(plain + ".gz"))
    for candidate in candidates:
        if candidate != images and candidate.is_file():
            return candidate
    raise DataError(f"labels are missing: put {plain} beside {images.name}")
