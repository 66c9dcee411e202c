"""Known facts about well-known files, where they are at hand."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest
from support.adult import ADULT

from silosynth.common.config import parse
from silosynth.common.datasets import DataConfig, load, load_records
from silosynth.common.schema import Schema

DATASETS = Path(__file__).parents[3] / "shared" / "datasets"


def present(name: str) -> Path:
    path = DATASETS / name
    if not path.exists():
        pytest.skip(f"../shared/datasets/{name} is not on this machine")
    return path


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_mnist_and_fashion(name: str) -> None:
    train, test = load(present(name), classes=10), load(present(name), classes=10, split="test")
    assert train.schema == test.schema == Schema((28, 28, 1), 10)
    assert (len(train), len(test)) == (60_000, 10_000)
    assert np.bincount(test.labels, minlength=10).tolist() == (
        [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009] if name == "mnist" else [1000] * 10
    )


def test_emnist_letters() -> None:
    path = present("emnist-letters")
    train = load(path, classes=26, first_label=1, transpose=True)
    assert len(train) == 124_800
    assert np.bincount(train.labels).tolist() == [4800] * 26
    letter_i = train.features[train.labels == 8, :, :, 0].mean(axis=0)
    assert letter_i.sum(axis=0).max() > letter_i.sum(axis=1).max(), "an upright i is taller than wide"


def test_pneumoniamnist() -> None:
    path = present("pneumoniamnist/pneumoniamnist.npz")
    train, test = load(path, classes=2), load(path, classes=2, split="test")
    assert (len(train), len(test)) == (4708, 624)
    assert train.schema == Schema((28, 28, 1), 2)


def test_adult() -> None:
    present("adult")
    train, test = (
        load_records(parse(DataConfig, {"path": name, **tomllib.loads(ADULT)}, "adult.toml"), DATASETS / "adult")
        for name in ("adult.data", "adult.test")
    )
    assert (len(train), len(test)) == (32_561, 16_281)
    assert (int(train.labels.sum()), int(test.labels.sum())) == (7_841, 3_846)
    assert train.schema == test.schema == Schema((38,), 2)
    assert np.abs(train.features).max() == 1


def test_adult_rows_with_missing_values_can_be_dropped() -> None:
    config = tomllib.loads(ADULT)
    config["table"]["missing"] = "drop"
    assert len(load(present("adult/adult.data"), **config)) == 30_162
