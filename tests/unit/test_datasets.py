"""What all sources have in common; digits, IDX and CIFAR from small made-up files, whole and damaged."""

from __future__ import annotations

import gzip
import struct
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from silosynth.common.config import parse
from silosynth.common.datasets import DataConfig, Records, load, load_records
from silosynth.common.datasets.files import reading
from silosynth.common.datasets.records import to_bytes_range, to_unit_range
from silosynth.common.errors import ConfigError, DataError
from silosynth.common.schema import Schema

RNG = np.random.default_rng(7)
PIXELS = RNG.integers(0, 256, (6, 5, 4), dtype=np.uint8)
LABELS = np.array([0, 2, 1, 2, 0, 1], dtype=np.uint8)


def idx_bytes(array: np.ndarray) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def write_idx(folder: Path, stem: str = "train", images: Any = PIXELS, labels: Any = LABELS) -> Path:
    (folder / f"{stem}-images-idx3-ubyte").write_bytes(idx_bytes(images))
    (folder / f"{stem}-labels-idx1-ubyte").write_bytes(idx_bytes(labels))
    return folder


def refused(path: Path, reason: str, **options: Any) -> None:
    with pytest.raises(DataError, match=reason) as caught:
        load(path, **options)
    assert path.name in str(caught.value)
    assert caught.value.__cause__ is None, "a chained cause could quote a record"


# Digits


def test_digits_come_in_a_fixed_stratified_split() -> None:
    train, test = load("digits"), load("digits", split="test")
    assert (len(train), len(test)) == (1437, 360)
    assert train.schema == Schema((8, 8, 1), 10)
    assert train.features.dtype == np.uint8
    assert (train.features.min(), train.features.max()) == (0, 255)
    assert np.bincount(test.labels).min() >= 34
    assert np.array_equal(load("digits").features, train.features)


# IDX


@pytest.mark.parametrize("stem", ["train", "t10k", "emnist-letters-test"])
def test_idx_folder(tmp_path: Path, stem: str) -> None:
    write_idx(tmp_path, stem)
    records = load(tmp_path, classes=3, split="train" if stem == "train" else "test")
    assert records.schema == Schema((5, 4, 1), 3)
    assert np.array_equal(records.features[..., 0], PIXELS)
    assert np.array_equal(records.labels, LABELS)
    assert records.features.flags.writeable, "torch warns about read-only arrays"


def test_idx_gzipped_file_given_itself(tmp_path: Path) -> None:
    images = tmp_path / "silo3-images-idx3-ubyte.gz"
    images.write_bytes(gzip.compress(idx_bytes(PIXELS)))
    (tmp_path / "silo3-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx_bytes(LABELS)))
    assert np.array_equal(load(images, classes=3).features[..., 0], PIXELS)
    refused(images, "no 'test' split", classes=3, split="test")


def test_idx_transposed_with_labels_from_one(tmp_path: Path) -> None:
    write_idx(tmp_path, labels=LABELS + 1)
    records = load(tmp_path, classes=3, transpose=True, first_label=1)
    assert np.array_equal(records.features[..., 0], PIXELS.transpose(0, 2, 1))
    assert np.array_equal(records.labels, LABELS)
    refused(tmp_path / "train-images-idx3-ubyte", "labels are outside", classes=3)


@pytest.mark.parametrize("count", [0, 1])
def test_idx_of_none_or_one(tmp_path: Path, count: int) -> None:
    write_idx(tmp_path, images=PIXELS[:count], labels=LABELS[:count])
    assert len(load(tmp_path, classes=3)) == count


def test_idx_classes_must_be_declared(tmp_path: Path) -> None:
    refused(write_idx(tmp_path) / "train-images-idx3-ubyte", "declare `classes`")


def test_idx_ambiguous_or_missing_files(tmp_path: Path) -> None:
    write_idx(tmp_path)
    refused(tmp_path, "exactly one 'test'", classes=3, split="test")
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx_bytes(PIXELS)))
    assert len(load(tmp_path, classes=3)) == len(LABELS), "the same file gzipped is no second file"
    write_idx(tmp_path, "balanced-train")
    refused(tmp_path, "exactly one 'train'", classes=3)
    (tmp_path / "train-labels-idx1-ubyte").unlink()
    refused(tmp_path / "train-images-idx3-ubyte", "labels are missing", classes=3)


HUGE_IDX = struct.pack(">BBBB3I", 0, 0, 8, 3, 1 << 30, 1 << 10, 1) + bytes(100)
GOOD_GZIP = gzip.compress(idx_bytes(PIXELS))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "begin like an IDX"),
        (b"\x00\x00\x08", "begin like an IDX"),
        (b"\x00\x00\x0d\x03" + bytes(60), "begin like an IDX"),
        (idx_bytes(LABELS), "begin like an IDX"),
        (HUGE_IDX, "promises more"),
        (gzip.compress(HUGE_IDX), "promises more"),
        (idx_bytes(PIXELS)[:-1], "disagrees with its header"),
        (idx_bytes(PIXELS) + b"\x00", "disagrees with its header"),
        (idx_bytes(PIXELS[:, :0]), "shape"),
        (idx_bytes(PIXELS[:5]), "not a pair"),
        (GOOD_GZIP[:-20], "truncated or damaged"),
        (GOOD_GZIP[:30] + b"\xff\xff" + GOOD_GZIP[32:], "truncated or damaged"),
        (GOOD_GZIP[:-8] + bytes(8), "truncated or damaged"),
    ],
)
def test_idx_malformed(tmp_path: Path, content: bytes, reason: str) -> None:
    images = write_idx(tmp_path) / "train-images-idx3-ubyte"
    images.write_bytes(content)
    refused(images, reason, classes=3)


# CIFAR


def cifar_bytes(count: int, prefix: int, label: int) -> bytes:
    rows = np.arange(count * (prefix + 3072)).reshape(count, -1).astype(np.uint8)
    rows[:, :prefix] = label
    return rows.tobytes()


def test_cifar10_folder(tmp_path: Path) -> None:
    for batch in (1, 2):
        (tmp_path / f"data_batch_{batch}.bin").write_bytes(cifar_bytes(2, 1, batch))
    (tmp_path / "test_batch.bin").write_bytes(cifar_bytes(1, 1, 9))
    train, test = load(tmp_path), load(tmp_path, split="test")
    assert train.schema == Schema((32, 32, 3), 10)
    assert train.labels.tolist() == [1, 1, 2, 2]
    assert test.labels.tolist() == [9]
    red_plane = np.arange(1, 1025, dtype=np.int64).astype(np.uint8).reshape(32, 32)
    assert np.array_equal(test.features[0, ..., 0], red_plane)
    assert load(tmp_path / "test_batch.bin", classes=10).labels.tolist() == [9]
    refused(tmp_path, "has 10 classes, but `classes` declares 12", classes=12)


def test_cifar100_uses_the_fine_label(tmp_path: Path) -> None:
    content = bytearray(cifar_bytes(1, 2, 3))
    content[1] = 77
    (tmp_path / "train.bin").write_bytes(content)
    assert load(tmp_path).schema.classes == 100
    assert load(tmp_path / "train.bin").labels.tolist() == [77]


def test_cifar_pickles_are_refused(tmp_path: Path) -> None:
    for name in ("data_batch_1", "batches.meta", "other.bin"):
        (tmp_path / name).write_bytes(b"\x80\x04.")
    refused(tmp_path / "data_batch_1", "pickle.*binary version")
    refused(tmp_path / "other.bin", "pickle.*binary version", classes=10)
    refused(tmp_path, "pickle.*binary version")


def test_cifar_malformed(tmp_path: Path) -> None:
    batch = tmp_path / "data_batch_1.bin"
    for content, reason in [(b"", "empty"), (bytes(3072), "multiple"), (cifar_bytes(1, 1, 10), "outside")]:
        batch.write_bytes(content)
        refused(batch, reason)
    refused(tmp_path, "for this split", split="test")
    batch.rename(tmp_path / "mine.bin")
    refused(tmp_path / "mine.bin", "declare `classes`")


# Any source


def test_batches_are_flat_and_in_unit_range() -> None:
    records = Records(np.array([0, 255, 51], np.uint8).reshape(3, 1, 1, 1), np.arange(3), Schema((1, 1, 1), 3))
    parts = list(records.batches(size=2))
    assert [features.shape for features, _ in parts] == [(2, 1), (1, 1)]
    assert np.concatenate([features for features, _ in parts])[:, 0] == pytest.approx([-1, 1, -0.6])
    assert records.take(np.array([2])).labels.tolist() == [2]


def test_bytes_survive_the_unit_range() -> None:
    every_byte = np.arange(256, dtype=np.uint8)
    assert np.array_equal(to_bytes_range(to_unit_range(every_byte)), every_byte)
    assert to_bytes_range(np.array([-3.0, 3.0])).tolist() == [0, 255]


def test_records_refuse_other_shapes_and_types() -> None:
    for features, reason in [(np.zeros((2, 4), np.uint8), "shape"), (np.zeros((2, 3)), "float64")]:
        with pytest.raises(DataError, match=reason):
            Records(features, np.zeros(2, np.int64), Schema((3,), 1))


def test_too_large_for_memory(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not fit into memory"), reading(tmp_path):
        raise MemoryError


def test_relative_paths_belong_to_the_config(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=PIXELS, labels=LABELS)
    config = parse(DataConfig, tomllib.loads('path = "a.npz"\nclasses = 3'), "silo.toml")
    assert len(load_records(config, tmp_path)) == len(LABELS)


@pytest.mark.parametrize(
    "text",
    [
        "",
        'source = "digits"\npath = "x"',
        'source = "npz"',
        'path = "x"\nclasses = 0',
        'path = "x"\nclasses = [""]',
        'path = "x"\nclasses = true',
        'path = "x"\nsplit = "val"',
        'path = "x"\nsize = [0, 3]',
        'path = "x"\nfoo = 1',
    ],
)
def test_data_config_that_makes_no_sense(text: str) -> None:
    with pytest.raises(ConfigError, match=r"silo\.toml"):
        parse(DataConfig, tomllib.loads(text), "silo.toml")


def test_options_of_another_format_are_refused(tmp_path: Path) -> None:
    refused(write_idx(tmp_path), "size mean nothing to source 'idx'", classes=3, size=[2, 2])


@pytest.mark.parametrize("source", ["auto", "idx", "cifar", "npz", "images", "csv"])
def test_missing_path(tmp_path: Path, source: str) -> None:
    refused(tmp_path / "nowhere.bin", "no such file", source=source)


def test_unrecognised_path(tmp_path: Path) -> None:
    (tmp_path / "data.xyz").write_bytes(b"?")
    refused(tmp_path / "data.xyz", "set `source`")
    refused(tmp_path, "set `source`")
