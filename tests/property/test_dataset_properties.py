"""Whatever bytes a parser is given, records or a DataError come out."""

from __future__ import annotations

import gzip
import io
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image

from silosynth.common.datasets import Records, load, save_npz
from silosynth.common.errors import DataError
from silosynth.common.schema import Schema

QUICK = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])

SHAPES = st.one_of(
    st.tuples(st.integers(0, 5), st.integers(1, 5)),
    st.tuples(st.integers(0, 5), st.integers(1, 5), st.integers(1, 5), st.integers(1, 4)),
)


@st.composite
def records(draw: st.DrawFn) -> Records:
    shape, classes = draw(SHAPES), draw(st.integers(1, 12))
    floats = arrays.arrays(np.float32, shape, elements=st.floats(-1, 1, width=32))
    features = draw(st.one_of(floats, arrays.arrays(np.uint8, shape)))
    labels = draw(arrays.arrays(np.int64, shape[0], elements=st.integers(0, classes - 1)))
    return Records(features, labels, Schema(shape[1:], classes))


@contextmanager
def folder() -> Iterator[Path]:
    with TemporaryDirectory() as name:
        yield Path(name)


@QUICK
@given(records())
def test_npz_round_trip(original: Records) -> None:
    with folder() as place:
        save_npz(original, place / "shard.npz")
        again = load(place / "shard.npz")
    assert again.schema == original.schema
    assert again.features.dtype == original.features.dtype
    assert np.array_equal(again.features, original.features)
    assert np.array_equal(again.labels, original.labels)


def idx_bytes(array: np.ndarray) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


@QUICK
@given(arrays.arrays(np.uint8, st.tuples(st.integers(0, 6), st.integers(1, 6), st.integers(1, 6))), st.booleans())
def test_idx_round_trip(pixels: np.ndarray, compressed: bool) -> None:
    pack = gzip.compress if compressed else bytes
    labels = np.arange(len(pixels), dtype=np.uint8)
    with folder() as place:
        (place / "train-images-idx3-ubyte").write_bytes(pack(idx_bytes(pixels)))
        (place / "train-labels-idx1-ubyte").write_bytes(pack(idx_bytes(labels)))
        again = load(place, classes=6)
    assert np.array_equal(again.features[..., 0], pixels)
    assert np.array_equal(again.labels, labels)


def npz_bytes(compressed: bool) -> bytes:
    stream = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(
        stream, images=np.zeros((3, 2, 2), np.uint8), labels=np.arange(3), num_classes=np.asarray(3)
    )
    return stream.getvalue()


def png_bytes() -> bytes:
    stream = io.BytesIO()
    Image.fromarray(np.arange(48, dtype=np.uint8).reshape(4, 4, 3)).save(stream, format="PNG")
    return stream.getvalue()


SEEDS = {
    "train-images-idx3-ubyte": [
        idx_bytes(np.zeros((3, 2, 2), np.uint8)),
        gzip.compress(idx_bytes(np.zeros((3, 2, 2), np.uint8)), mtime=0),
    ],
    "shard.npz": [npz_bytes(False), npz_bytes(True)],
    "data_batch_1.bin": [bytes(3073)],
    "images/a.png": [png_bytes()],
    "table.csv": [b"1,a\n0.5,b\n"],
}
TABLE = {"label": "y", "columns": [{"name": "x", "bounds": [0, 1]}, {"name": "y", "categories": ["a", "b"]}]}


def try_to_load(name: str, content: bytes) -> None:
    options = {"table": TABLE} if name.endswith(".csv") else {}
    with folder() as place:
        path = place / name
        path.parent.mkdir(exist_ok=True)
        (place / "train-labels-idx1-ubyte").write_bytes(idx_bytes(np.arange(3, dtype=np.uint8)))
        path.write_bytes(content)
        target = place if name.startswith("images/") else path
        try:
            load(target, source="images" if target == place else "auto", **options)
            return
        except DataError as error:
            complaint = str(error)
        assert str(place) in complaint


@pytest.mark.parametrize("name", SEEDS)
def test_random_bytes(name: str) -> None:
    @QUICK
    @given(st.binary(max_size=400))
    @example(b"")
    def check(content: bytes) -> None:
        try_to_load(name, content)

    check()


@pytest.mark.parametrize(("name", "seed"), [(name, seed) for name, seeds in SEEDS.items() for seed in seeds])
def test_damaged_files(name: str, seed: bytes) -> None:
    """A valid file with bytes overwritten and its end cut off reaches deeper than random bytes."""

    @QUICK
    @given(st.lists(st.tuples(st.integers(0, len(seed) - 1), st.integers(0, 255)), max_size=4), st.integers(0, 12))
    def check(flips: list[tuple[int, int]], cut: int) -> None:
        content = bytearray(seed)
        for position, value in flips:
            content[position] = value
        try_to_load(name, bytes(content[: len(content) - cut]))

    check()
