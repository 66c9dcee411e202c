"""Protocols: how long, in which batches, with which changes, and that the seed alone decides."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from silosynth.common.augmentation import OPS
from silosynth.common.datasets import Records
from silosynth.common.errors import ConfigError
from silosynth.common.schema import Schema
from silosynth.server.config import EvaluationSettings
from silosynth.server.evaluation import ceiling, evaluate, training
from silosynth.server.evaluation.intervals import interval
from silosynth.server.evaluation.protocols import PROTOCOLS
from silosynth.server.recipes.base import Product

SCHEMA = Schema((8, 8, 1), 3)


def bars(count: int, seed: int) -> Records:
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 3, count)
    pixels = generator.integers(0, 100, (count, 8, 8, 1), dtype=np.uint8)
    pixels[np.arange(count), :, 1 + 2 * labels, 0] = 255
    return Records(pixels, labels, SCHEMA)


def product(count: int) -> Product:
    records = bars(count, seed=0)
    return Product(records.features.astype(np.float32) / 127.5 - 1, records.labels)


def settings(protocol: Any, **others: Any) -> EvaluationSettings:
    return EvaluationSettings.model_validate({"protocol": protocol, "device": "cpu", "model": "convnet", **others})


@pytest.mark.parametrize(
    ("protocol", "count", "steps"),
    [
        ("quick", 10, 400),
        ("quick", 60_000, 400),
        ("family", 100, 1000),
        ("family", 500, 2000),
        ("family-short", 500, 600),
        ("family-short", 60_000, 2000),
        ("sps", 100, 100),
        ("sps", 1000, 400),
        ("sps", 50_000, 1960),
    ],
)
def test_lengths(protocol: str, count: int, steps: int) -> None:
    assert PROTOCOLS[protocol].steps(count) == steps


def test_settings_may_say_another_length() -> None:
    assert evaluate(product(9), bars(9, seed=1), settings("family", steps=2, seeds=1)).steps == 2


@pytest.mark.parametrize("protocol", ["family", "family-short", "sps"])
def test_an_epoch_shows_each_record_once(protocol: str) -> None:
    batches = PROTOCOLS[protocol].batches(300, torch.Generator().manual_seed(0))
    first, second = (torch.cat(list(islice(batches, 2))) for _ in range(2))
    assert torch.equal(first.sort().values, torch.arange(300))
    assert torch.equal(second.sort().values, torch.arange(300))
    assert not torch.equal(first, second)


def test_quick_draws_full_batches_of_a_small_set() -> None:
    batches = PROTOCOLS["quick"].batches(3, torch.Generator().manual_seed(0))
    assert [len(batch) for batch in islice(batches, 2)] == [64, 64]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_protocol_learns_from_hard_and_soft_labels(protocol: str) -> None:
    test, made = bars(90, seed=1), product(60)
    short = settings(protocol, steps=40, seeds=1, augmentation=())
    assert evaluate(made, test, short).accuracy > 0.8
    misled = Product(made.features, made.labels, soft_labels=np.eye(3, dtype=np.float32)[(made.labels + 1) % 3])
    assert evaluate(misled, test, short).accuracy < 0.2


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_seed_alone_decides(protocol: str) -> None:
    short = settings(protocol, steps=5, seeds=2)
    torch.manual_seed(1)
    first = evaluate(product(30), bars(300, seed=1), short)
    torch.manual_seed(2)
    before = torch.random.get_rng_state()
    second = evaluate(product(30), bars(300, seed=1), short)
    assert first.accuracy_by_seed == second.accuracy_by_seed
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize(
    ("protocol", "chosen", "used"),
    [
        ("family", None, {("color", "crop", "cutout", "scale", "rotate")}),
        ("family", [], set()),
        ("family", ["flip", "crop"], {("flip", "crop")}),
        ("quick", None, set()),
        ("quick", ["crop"], {("crop",)}),
        ("sps", None, set()),
    ],
)
def test_augmentation_is_the_protocols_or_chosen(
    protocol: str, chosen: list[str] | None, used: set[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[tuple[str, ...], int]] = []

    def spy(images: Tensor, ops: tuple[str, ...], seed: int) -> Tensor:
        calls.append((ops, seed))
        return images

    monkeypatch.setattr(training, "augment", spy)
    ceiling(bars(9, seed=0), bars(9, seed=1), settings(protocol, steps=4, augmentation=chosen))
    assert {ops for ops, _ in calls} == used
    assert len({seed for _, seed in calls}) == (4 if used else 0)


def test_no_protocol_flips_unless_told() -> None:
    assert all("flip" not in protocol.augmentation for protocol in PROTOCOLS.values())


@pytest.mark.parametrize("op", OPS)
def test_settings_know_each_augmentation(op: str) -> None:
    assert settings("quick", augmentation=[op]).augmentation == (op,)


def test_tables_are_not_augmented() -> None:
    rows = Records(np.eye(3, dtype=np.float32), np.arange(3), Schema((3,), 3))
    assert ceiling(rows, rows, settings("family", steps=300, model="linear")) == 1.0
    with pytest.raises(ConfigError, match="augmentation is for images"):
        ceiling(rows, rows, settings("quick", steps=1, model="linear", augmentation=["crop"]))


def test_intervals_over_seeds() -> None:
    by_seed = np.array([0.70, 0.72, 0.77])
    low, high = stats.t.interval(0.95, 2, by_seed.mean(), stats.sem(by_seed))
    found = interval(by_seed, 1000)
    assert (found.low, found.high) == pytest.approx((low, high))
    assert found.method == "t over seeds"


def test_the_interval_of_one_seed_is_over_test_records() -> None:
    found, expected = interval(np.array([0.9]), 200), stats.binomtest(180, 200).proportion_ci(method="wilson")
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert found.method == "Wilson over test records"


def test_intervals_stay_among_shares() -> None:
    assert interval(np.array([1.0, 0.8]), 10).high == 1.0
    assert interval(np.array([0.0]), 10).low == 0.0
