"""npz files, whole and damaged."""

from __future__ import annotations

import io
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from silosynth.common.datasets import Records, load, save_npz
from silosynth.common.errors import DataError
from silosynth.common.schema import Schema

RNG = np.random.default_rng(7)
PIXELS = RNG.integers(0, 256, (6, 5, 4), dtype=np.uint8)
LABELS = np.array([0, 2, 1, 2, 0, 1], dtype=np.uint8)


def refused(path: Path, reason: str, **options: Any) -> None:
    with pytest.raises(DataError, match=reason) as caught:
        load(path, **options)
    assert path.name in str(caught.value)
    assert caught.value.__cause__ is None, "a chained cause could quote a record"


@pytest.mark.parametrize(
    ("arrays", "split"),
    [
        ({"images": PIXELS, "labels": LABELS}, None),
        ({"x": PIXELS[..., None], "y": LABELS[:, None]}, None),
        ({"test_images": PIXELS, "test_labels": LABELS[:, None]}, "test"),
        ({"x_train": PIXELS, "y_train": LABELS.astype(np.int64)}, None),
    ],
)
def test_npz_names(tmp_path: Path, arrays: dict[str, np.ndarray], split: str | None) -> None:
    np.savez_compressed(tmp_path / "a.npz", **arrays)
    records = load(tmp_path / "a.npz", classes=3, split=split)
    assert records.schema == Schema((5, 4, 1), 3)
    assert np.array_equal(records.features[..., 0], PIXELS)
    assert np.array_equal(records.labels, LABELS)


@pytest.mark.parametrize(
    "features",
    [PIXELS[..., None], np.linspace(-1, 1, 18, dtype=np.float32).reshape(6, 3), np.zeros((6, 2, 2, 3), np.float32)],
)
def test_saved_npz_comes_back(tmp_path: Path, features: np.ndarray) -> None:
    records = Records(features, LABELS.astype(np.int64), Schema(features.shape[1:], 5))
    save_npz(records, tmp_path / "shard.npz")
    again = load(tmp_path / "shard.npz")
    assert again.schema == records.schema
    assert again.features.dtype == records.features.dtype
    assert np.array_equal(again.features, records.features)
    assert np.array_equal(again.labels, records.labels)
    refused(tmp_path / "shard.npz", "declares 4", classes=4)


def test_npz_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be written"):
        save_npz(load("digits"), tmp_path / "missing" / "shard.npz")


BAD_ARRAYS: list[tuple[dict[str, Any], str]] = [
    ({"a": PIXELS}, "holds neither"),
    ({"images": PIXELS, "labels": LABELS[:5]}, "differ in number"),
    ({"images": PIXELS, "labels": LABELS + 1}, "outside"),
    ({"images": PIXELS, "labels": LABELS - np.float32(0)}, "integers"),
    ({"images": PIXELS, "labels": np.full(6, 2**64 - 1, np.uint64)}, "outside"),
    ({"images": PIXELS.astype(np.int32), "labels": LABELS}, "int32"),
    ({"images": PIXELS.transpose(0, 2, 1)[..., None, None], "labels": LABELS}, "features must be"),
    ({"images": np.zeros((6, 3, 8, 8), np.uint8), "labels": LABELS}, "features must be"),
    ({"images": np.zeros((1, 5000, 5000), np.uint8), "labels": LABELS[:1]}, "out of range"),
    ({"x": np.full((6, 2), np.nan), "y": LABELS}, "NaN"),
    ({"x": np.full((6, 2), 1e300), "y": LABELS}, "NaN or infinite"),
    ({"x": np.full((6, 2), 1.5), "y": LABELS}, r"outside \[-1, 1\]"),
    ({"x": np.array(["a", "b"], dtype=object), "y": LABELS}, "pickled"),
    ({"images": PIXELS, "labels": LABELS, "num_classes": LABELS}, "one integer"),
]


@pytest.mark.parametrize(("arrays", "reason"), BAD_ARRAYS)
def test_npz_with_bad_arrays(tmp_path: Path, arrays: dict[str, Any], reason: str) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    refused(tmp_path / "a.npz", reason, classes=3)


def test_npz_needs_classes_and_no_split(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=PIXELS, labels=LABELS)
    refused(tmp_path / "a.npz", "declare `classes`")
    refused(tmp_path / "a.npz", "no 'train' split", classes=3, split="train")


def npz_with_header(shape: str, body: bytes = bytes(8)) -> bytes:
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    member = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + body
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("images.npy", member)
        archive.writestr("labels.npy", member)
    return stream.getvalue()


def oversized_npz() -> bytes:
    """The archive's directory claims a member of almost 4 GB."""
    content = npz_with_header("(8,)")
    directory = content.index(b"PK\x01\x02")
    return content[: directory + 24] + struct.pack("<I", 0xFFFFFFF0) + content[directory + 28 :]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "no npz"),
        (b"\x80\x04.", "no npz"),
        (npz_with_header("(8,)")[:200], "no npz"),
        (npz_with_header("(1099511627776, 1024)"), "disagrees with its header"),
        (npz_with_header("(-2, -4)"), "disagrees with its header"),
        (npz_with_header("'8'"), "no npz"),
        (npz_with_header("(8,)").replace(b"NUMPY\x01", b"NUMPY\x09"), "no npz"),
        (npz_with_header("(8,)", b"12345678").replace(b"12345678", b"12345679", 1), "no npz"),
        (oversized_npz(), "promises more"),
    ],
)
def test_npz_damaged(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "a.npz"
    path.write_bytes(content)
    refused(path, reason, classes=3)
