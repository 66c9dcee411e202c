"""Image folders, whole and damaged."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from silosynth.common.datasets import load
from silosynth.common.errors import DataError
from silosynth.common.schema import Schema

RNG = np.random.default_rng(7)
PIXELS = RNG.integers(0, 256, (6, 5, 4), dtype=np.uint8)


def refused(path: Path, reason: str, **options: Any) -> None:
    with pytest.raises(DataError, match=reason) as caught:
        load(path, **options)
    assert path.name in str(caught.value)
    assert caught.value.__cause__ is None, "a chained cause could quote a record"


def write_images(root: Path, **classes: int) -> Path:
    for name, count in classes.items():
        (root / name).mkdir(parents=True)
        for number in range(count):
            Image.fromarray(PIXELS[number]).save(root / name / f"{number}.png")
    return root


def test_image_folder(tmp_path: Path) -> None:
    write_images(tmp_path, dog=2, cat=1, empty=0)
    (tmp_path / "cat" / "notes.txt").write_text("not an image")
    records = load(tmp_path)
    assert records.schema == Schema((5, 4, 1), 3)
    assert records.labels.tolist() == [0, 1, 1]
    assert np.array_equal(records.features[..., 0], PIXELS[[0, 0, 1]])
    refused(tmp_path, "has 3 classes, but `classes` declares 2", classes=2)


def test_image_folder_declared_classes_fix_the_labels(tmp_path: Path) -> None:
    write_images(tmp_path, dog=1)
    assert load(tmp_path, classes=["cat", "dog"]).labels.tolist() == [1]
    refused(tmp_path, "not among the declared", classes=["cat"])


def test_image_folder_splits(tmp_path: Path) -> None:
    write_images(tmp_path / "train", dog=2)
    write_images(tmp_path / "test", dog=1)
    assert (len(load(tmp_path)), len(load(tmp_path, split="test"))) == (2, 1)
    refused(tmp_path / "train", "no 'test' split", split="test")
    (tmp_path / "test").rename(tmp_path / "val")
    refused(tmp_path, "has no folder 'test'", split="test")


def test_image_folder_resizes_and_converts(tmp_path: Path) -> None:
    write_images(tmp_path, dog=1)
    rgb = Image.fromarray(RNG.integers(0, 256, (9, 9, 3), dtype=np.uint8))
    rgb.save(tmp_path / "dog" / "a.JPG", format="JPEG")
    rgb.convert("P").save(tmp_path / "dog" / "b.png", transparency=b"\x00\x01")
    assert load(tmp_path, size=[8, 6], colour=True).schema.shape == (8, 6, 3)
    assert load(tmp_path, size=[8, 6], colour=False).schema.shape == (8, 6, 1)
    refused(tmp_path / "dog", "no folders", source="images")
    with pytest.raises(DataError, match=r"a\.JPG.*declare `colour`"):
        load(tmp_path, size=[8, 6])
    with pytest.raises(DataError, match=r"a\.JPG.*declare `size`"):
        load(tmp_path, colour=False)


def test_image_folder_without_images(tmp_path: Path) -> None:
    write_images(tmp_path, dog=0)
    refused(tmp_path, "declare `size` and `colour`")
    assert len(load(tmp_path, size=[8, 8], colour=False)) == 0


def png_size(side: int) -> bytes:
    """From the size to the checksum of a PNG's header, for a grey image."""
    size = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    return size + struct.pack(">I", zlib.crc32(b"IHDR" + size))


def damaged_images() -> dict[str, tuple[bytes, str]]:
    png, deep = io.BytesIO(), io.BytesIO()
    Image.fromarray(PIXELS[0]).save(png, format="PNG")
    Image.fromarray(PIXELS[0].astype(np.uint16)).save(deep, format="PNG")
    large, enormous = (png_size(side) + png.getvalue()[33:] for side in (5000, 60000))
    return {
        "empty": (b"", "check the file"),
        "other": (b"GIF89a" + bytes(40), "check the file"),
        "truncated": (png.getvalue()[:-30], "check the file|damaged"),
        "deep": (deep.getvalue(), "8 bits"),
        "large": (png.getvalue()[:16] + large, "pixels: shrink it"),
        "enormous": (png.getvalue()[:16] + enormous, "damaged"),
    }


@pytest.mark.parametrize("kind", damaged_images())
@pytest.mark.parametrize("options", [{}, {"size": [5, 4], "colour": False}])
def test_image_folder_with_a_damaged_file(tmp_path: Path, kind: str, options: dict[str, Any]) -> None:
    content, reason = damaged_images()[kind]
    write_images(tmp_path, dog=2)
    (tmp_path / "dog" / "0.png").write_bytes(content)
    with pytest.raises(DataError, match=reason) as caught:
        load(tmp_path, **options)
    assert "0.png" in str(caught.value)
