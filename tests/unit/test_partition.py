from __future__ import annotations

import numpy as np
import pytest

from silosynth.common.errors import ConfigError
from silosynth.common.partition import partition

LABELS = np.repeat(np.arange(10), 100)


def sizes(parts: list[np.ndarray]) -> list[int]:
    return [len(part) for part in parts]


def class_counts(parts: list[np.ndarray]) -> np.ndarray:
    return np.stack([np.bincount(LABELS[part], minlength=10) for part in parts])


def test_iid_is_even_in_size_and_class() -> None:
    parts = partition("iid", LABELS, 7, seed=0)
    assert set(sizes(parts)) <= {142, 143}
    assert class_counts(parts).min() > 0


def test_dirichlet_skews_more_with_smaller_alpha() -> None:
    def skew(kind: str) -> float:
        counts = class_counts(partition(kind, LABELS, 5, seed=1))
        return float(np.mean(counts.max(axis=0) / 100))

    assert skew("dirichlet:1000") < 0.3 < skew("dirichlet:0.5") < skew("dirichlet:0.01")


def test_dirichlet_proportions_have_the_right_spread() -> None:
    alpha, silos = 0.5, 4
    labels = np.repeat(np.arange(2000), 200)
    owners = np.empty(len(labels), dtype=np.int64)
    for silo, part in enumerate(partition(f"dirichlet:{alpha}", labels, silos, seed=3)):
        owners[part] = silo
    shares = np.stack([np.bincount(labels[owners == silo], minlength=2000) / 200 for silo in range(silos)])
    mean = 1 / silos
    assert shares.mean() == pytest.approx(mean)
    assert shares.var() == pytest.approx(mean * (1 - mean) / (silos * alpha + 1), rel=0.05)


@pytest.mark.parametrize(("silos", "classes_each"), [(10, 1), (30, 1), (25, 1), (5, 2), (1, 10)])
def test_classes_gives_each_silo_whole_classes_or_one(silos: int, classes_each: int) -> None:
    counts = class_counts(partition("classes", LABELS, silos, seed=0))
    assert ((counts > 0).sum(axis=1) == classes_each).all()


def test_power_law_sizes_fall_by_rank() -> None:
    assert sizes(partition("powerlaw:1", LABELS, 3, seed=0)) == [545, 273, 182]
    assert sizes(partition("powerlaw:400", LABELS, 3, seed=0)) == [998, 1, 1]


@pytest.mark.parametrize("kind", ["iid", "dirichlet:0.001", "classes", "powerlaw:3"])
def test_few_records(kind: str) -> None:
    assert sizes(partition(kind, LABELS[:0], 3, seed=0)) == [0, 0, 0]
    assert sorted(sizes(partition(kind, LABELS[:2], 3, seed=0))) == [0, 1, 1]
    assert sizes(partition(kind, LABELS[::100], 10, seed=0)) == [1] * 10


@pytest.mark.parametrize(
    "kind",
    [
        "",
        "IID",
        "iid:1",
        "dirichlet",
        "dirichlet:",
        "dirichlet:x",
        "dirichlet:0",
        "dirichlet:nan",
        "dirichlet:inf",
        "dirichlet:1:2",
        "powerlaw",
        "powerlaw:-1",
        "powerlaw:inf",
        "powerlaw:nan",
        "classes:2",
    ],
)
def test_unknown_kinds(kind: str) -> None:
    with pytest.raises(ConfigError):
        partition(kind, LABELS, 3, seed=0)


@pytest.mark.parametrize(("labels", "silos", "seed"), [(LABELS, 0, 0), (LABELS, 2, -1), (LABELS[None], 2, 0)])
def test_bad_arguments(labels: np.ndarray, silos: int, seed: int) -> None:
    with pytest.raises(ConfigError):
        partition("iid", labels, silos, seed)
