"""Every format from small made-up files, and everything that can be wrong with them."""

from __future__ import annotations

import gzip
import io
import struct
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from silosynth.common.config import parse
from silosynth.common.datasets import DataConfig, Records, load, load_records, save_npz
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


# npz


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


# Image folders


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


def damaged_images() -> dict[str, tuple[bytes, str]]:
    png, deep = io.BytesIO(), io.BytesIO()
    Image.fromarray(PIXELS[0]).save(png, format="PNG")
    Image.fromarray(PIXELS[0].astype(np.uint16)).save(deep, format="PNG")
    wide = png.getvalue()[:16] + struct.pack(">II", 60000, 60000) + png.getvalue()[24:]
    return {
        "empty": (b"", "check the file"),
        "other": (b"GIF89a" + bytes(40), "check the file"),
        "truncated": (png.getvalue()[:-30], "check the file|damaged"),
        "deep": (deep.getvalue(), "8 bits"),
        "enormous": (wide, "damaged|pixels"),
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


# Tables

TABLE = """
label = "sick"
missing = "refuse"
columns = [
  {name = "age", bounds = [0, 100]},
  {name = "town", categories = ["A", ["B", "b"]]},
  {name = "id", skip = true},
  {name = "sick", categories = ["no", "yes"]},
]
"""


def table(text: str = TABLE, **changes: Any) -> dict[str, Any]:
    return tomllib.loads(text) | changes


def write_csv(folder: Path, text: str) -> Path:
    (folder / "t.csv").write_text(text)
    return folder / "t.csv"


def test_table_is_encoded_by_declared_bounds_and_categories(tmp_path: Path) -> None:
    path = write_csv(tmp_path, '0, A, 7, no\n50,"b", 8 ,yes\n250,B,,yes\n\n')
    records = load(path, table=table())
    assert records.schema == Schema((3,), 2)
    assert records.features.tolist() == [[-1, 1, -1], [0, -1, 1], [1, -1, 1]]
    assert records.labels.tolist() == [0, 1, 1]


def test_table_with_header_in_any_order(tmp_path: Path) -> None:
    path = write_csv(tmp_path, "\ufeffsick;extra;town;age\n| comment\nyes;1;A;100\n")
    records = load(path, table=table(header=True, delimiter=";", comment="|"))
    assert records.features.tolist() == [[1, 1, -1]]
    refused(path, "header must name column 'age'", table=table(header=True))
    assert len(load(write_csv(tmp_path, "sick,town,age\n"), table=table(header=True))) == 0


@pytest.mark.parametrize(("policy", "count"), [("drop", 1), ("fill", 3)])
def test_table_missing_values(tmp_path: Path, policy: str, count: int) -> None:
    path = write_csv(tmp_path, "0,A,7,no\n?,A,,yes\n0,?,1,yes\n")
    other = TABLE.replace('["B", "b"]]', '["B", "b"]], other = true')
    records = load(path, table=table(other, missing=policy))
    assert len(records) == count
    if policy == "fill":
        assert records.features[1:].tolist() == [[0, 1, -1, -1], [-1, -1, -1, 1]]
        refused(path, "record 3: column 'town' has no value", table=table(missing="fill"))
    refused(path, "record 2: column 'age' has no value", table=table())


def test_table_declared_category_is_not_missing(tmp_path: Path) -> None:
    path = write_csv(tmp_path, "0,?,7,no\n")
    assert load(path, table=table(TABLE.replace('"A"', '"?"'))).features.tolist() == [[-1, 1, -1]]


def test_table_unknown_category_may_be_other(tmp_path: Path) -> None:
    path = write_csv(tmp_path, "0,Z,7,no\n")
    other = TABLE.replace('["B", "b"]]', '["B", "b"]], other = true')
    assert load(path, table=table(other)).features.tolist() == [[-1, -1, -1, 1]]


def test_table_longer_than_a_chunk(tmp_path: Path) -> None:
    path = write_csv(tmp_path, "0,A,7,no\n" * 20_000 + "9,SECRET,7,no\n")
    refused(path, "record 20001: column 'town'", table=table())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is empty"),
        ("0,SECRET,7,no\n", "record 1: column 'town' is of no declared category"),
        ("0,A,7,SECRET\n", "record 1: column 'sick' is of no declared category"),
        ("SECRET,A,7,no\n", "column 'age' is not a finite number"),
        ("nan,A,7,no\n", "column 'age' is not a finite number"),
        ("1,A,7,no\ninf,A,7,no\n", "record 2: column 'age' is not a finite number"),
        ("0,A,7,no\n1,A,7\n", "record 2 does not have 4 columns"),
        ('0,"A"SECRET,7,no\n', "encoding and quotes"),
        ('0,"A,7,no\n', "encoding and quotes"),
    ],
)
def test_table_malformed(tmp_path: Path, text: str, reason: str) -> None:
    path = write_csv(tmp_path, text)
    refused(path, reason, table=table())
    with pytest.raises(DataError) as caught:
        load(path, table=table())
    assert "SECRET" not in str(caught.value).removeprefix(str(path))


def test_table_in_another_encoding(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"0,\xe9,7,no\n")
    refused(tmp_path / "t.csv", "encoding", table=table())


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("bounds = [0, 100]", "bounds = [0, 0]", "lower one first"),
        ("bounds = [0, 100]", "bounds = [0, inf]", "finite"),
        ("bounds = [0, 100]", "skip = false", "exactly one of"),
        ("skip = true", "skip = true, bounds = [0, 1]", "exactly one of"),
        ("bounds = [0, 100]", "bounds = [0, 100], other = true", "other = true belongs"),
        ('"A", ', '"b", ', "two categories"),
        ('"id"', '"age"', "same name"),
        ('label = "sick"', 'label = "age"', "must name a column"),
        ("skip = true", "skip = true, colour = 1", "unknown key"),
    ],
)
def test_table_config_that_makes_no_sense(old: str, new: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        parse(DataConfig, {"path": "t.csv", "table": table(TABLE.replace(old, new))}, "silo.toml")


# Any source


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
        'path = "x"\nclasses = []',
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
    refused(write_idx(tmp_path), "table mean nothing to source 'idx'", classes=3, table=table())


def test_table_without_columns(tmp_path: Path) -> None:
    refused(write_csv(tmp_path, "1,2\n"), "must be declared")


@pytest.mark.parametrize("source", ["auto", "idx", "cifar", "npz", "images", "csv"])
def test_missing_path(tmp_path: Path, source: str) -> None:
    options = {"table": table()} if source == "csv" else {"classes": 10}
    refused(tmp_path / "nowhere.bin", "no such file", source=source, **options)


def test_unrecognised_path(tmp_path: Path) -> None:
    (tmp_path / "data.xyz").write_bytes(b"?")
    refused(tmp_path / "data.xyz", "set `source`")
    refused(tmp_path, "set `source`")
