"""npz files: our own shards, MedMNIST, Keras' mnist.npz. Never with pickled objects.

Images are uint8 (n, height, width[, channels]); tables are (n, columns); floats must already lie in [-1, 1],
scaled by public bounds.
"""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from silosynth.common.datasets.data_config import DataConfig
from silosynth.common.datasets.files import MAX_DEFLATE_RATIO, parsing, reading
from silosynth.common.datasets.records import Features, Labels, Records, to_unit_range
from silosynth.common.errors import DataError
from silosynth.common.schema import Schema

WHOLE_NAMES = (("images", "labels"), ("features", "labels"), ("x", "y"))
SPLIT_NAMES = (("{}_images", "{}_labels"), ("x_{}", "y_{}"))
CLASSES_NAME = "num_classes"
MAX_CHANNELS = 4
ROUNDING_SLACK = 1e-6
HEADER_READERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}

Array = npt.NDArray[Any]


def recognises(path: Path) -> bool:
    return path.suffix == ".npz"


def read(path: Path, config: DataConfig) -> Records:
    with reading(path):
        arrays = _read_arrays(path, config)
        features, labels = _as_features(arrays[0]), _as_labels(arrays[1])
        if len(features) != len(labels):
            raise DataError("features and labels differ in number: they do not belong together")
        classes = _as_classes(arrays[2]) if len(arrays) > 2 else config.declared_classes()
        records = Records(features, labels, Schema(features.shape[1:], classes))
        _check_range(records.features)
        return records


def save_npz(records: Records, path: Path) -> None:
    """`load` reads it back without being told the classes: their number is public and goes into the file."""
    features = records.features if records.features.dtype == np.uint8 else to_unit_range(records.features)
    name = "images" if records.schema.is_image else "features"
    arrays = {name: features, "labels": records.labels, CLASSES_NAME: np.asarray(records.schema.classes)}
    try:
        with path.open("wb") as stream:
            np.savez(stream, allow_pickle=False, **arrays)
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror}): check the folder and the disk") from error


def _read_arrays(path: Path, config: DataConfig) -> list[Array]:
    """Features, labels and, where the file says it, the number of classes."""
    capacity = path.stat().st_size * MAX_DEFLATE_RATIO
    with parsing("is no npz file, or a damaged one: write it again with numpy.savez"), zipfile.ZipFile(path) as archive:
        present = {name.removesuffix(".npy") for name in archive.namelist()}
        wanted = [*_choose_names(present, config), *(present & {CLASSES_NAME})]
        return [_read_array(archive, f"{name}.npy", capacity) for name in wanted]


def _choose_names(present: set[str], config: DataConfig) -> tuple[str, str]:
    for names in WHOLE_NAMES:
        if present.issuperset(names):
            config.refuse_split()
            return names
    split = config.split or "train"
    for features, labels in SPLIT_NAMES:
        if present.issuperset(names := (features.format(split), labels.format(split))):
            return names
    raise DataError(f"holds neither images and labels, nor features and labels, nor {split}_images and {split}_labels")


def _read_array(archive: zipfile.ZipFile, member: str, capacity: int) -> Array:
    size = archive.getinfo(member).file_size
    if size > capacity:
        raise DataError(f"{member} promises more than the file can hold: fetch the file again")
    with archive.open(member) as stream:
        _check_header(stream, member, size)
    with archive.open(member) as stream:
        array: Array = np.lib.format.read_array(stream, allow_pickle=False)
        return array


def _check_header(stream: IO[bytes], member: str, size: int) -> None:
    """numpy takes the memory that a header asks for, so the header is compared with the file first."""
    shape, _, dtype = HEADER_READERS[np.lib.format.read_magic(stream)](stream)
    if dtype.hasobject:
        raise DataError(f"{member} is pickled, which could run code: save plain arrays instead")
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != size - stream.tell():
        raise DataError(f"{member}: its length disagrees with its header: write the file again")


def _as_features(array: Array) -> npt.NDArray[np.uint8] | Features:
    if array.dtype != np.uint8 and array.dtype.kind != "f":
        raise DataError(f"features are {array.dtype}: save images as uint8, tables as floats in [-1, 1]")
    if array.ndim == 3:
        array = array[..., None]
    if array.ndim not in (2, 4) or (array.ndim == 4 and array.shape[3] > MAX_CHANNELS):
        raise DataError("features must be (n, columns), (n, height, width) or (n, height, width, channels)")
    if array.dtype == np.uint8:
        return np.ascontiguousarray(array)
    with np.errstate(over="ignore"):  # becomes infinite, which Records refuses
        return np.ascontiguousarray(array, dtype=np.float32)


def _as_labels(array: Array) -> Labels:
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise DataError("labels must be integers, one for each record")
    return array.astype(np.int64)


def _as_classes(array: Array) -> int:
    if array.shape != () or array.dtype.kind not in "iu":
        raise DataError(f"{CLASSES_NAME} must be one integer")
    return int(array)


def _check_range(features: npt.NDArray[np.uint8] | Features) -> None:
    if features.dtype == np.float32 and features.size and not np.abs(features).max() <= 1 + ROUNDING_SLACK:
        raise DataError("features lie outside [-1, 1]: scale them by bounds that are public, not by their own extremes")
