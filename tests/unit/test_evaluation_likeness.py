"""Calibration, and likeness to public records."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from silosynth.common.datasets import Records, load
from silosynth.common.schema import Schema
from silosynth.server.config import EvaluationSettings
from silosynth.server.evaluation import evaluate
from silosynth.server.evaluation.calibration import calibration
from silosynth.server.evaluation.likeness import Likeness, frechet_distance, likeness
from silosynth.server.recipes.base import Product

CPU = torch.device("cpu")


def compared(synthetic: Records, reference: Records) -> Likeness:
    found = likeness(synthetic, reference, None, CPU)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def digits() -> tuple[Records, Records]:
    return load("digits", split="train"), load("digits", split="test")


def test_a_model_as_sure_as_it_is_right_has_no_error() -> None:
    sure = np.repeat(np.array([0.5, 0.9], dtype=np.float32), 10)
    right = np.array([True] * 5 + [False] * 5 + [True] * 9 + [False])
    assert calibration(sure, right).expected_error == pytest.approx(0, abs=1e-6)


def test_a_boaster_is_found_out() -> None:
    found = calibration(np.full((2, 50), 1.0, dtype=np.float32), np.arange(100).reshape(2, 50) % 4 == 0)
    assert found.expected_error == pytest.approx(0.75)
    (only,) = found.bins
    assert (only.high, only.share, only.accuracy) == (1.0, 1.0, 0.25)


def test_every_answer_is_in_one_bin() -> None:
    sure = np.random.default_rng(0).uniform(0, 1, 1000).astype(np.float32)
    sure[:2] = 0, 1
    assert sum(part.share for part in calibration(sure, sure > 0.5).bins) == pytest.approx(1)


def test_distance_of_gaussians_is_as_the_formula_says() -> None:
    points = np.random.default_rng(0).normal(size=(20_000, 3))
    scaled = points * [1, 2, 3] + [5, 0, 0]
    assert frechet_distance(points, scaled) == pytest.approx(25 + 0 + 1 + 4, rel=0.03)
    assert frechet_distance(points, points) == pytest.approx(0, abs=1e-9)


def test_records_of_the_same_kind_are_near_and_cover(digits: tuple[Records, Records]) -> None:
    found = compared(*digits)
    assert found.space == "procedural-grey"
    assert found.distance < found.distance_of_reference
    assert found.coverage > 0.95
    assert found.density == pytest.approx(1, abs=0.1)
    assert found.variety == pytest.approx(1, abs=0.05)


def test_a_few_copies_cover_little_and_vary_little(digits: tuple[Records, Records]) -> None:
    train, test = digits
    first = np.array([np.flatnonzero(train.labels == label)[0] for label in range(10)])
    found = compared(train.take(np.tile(first, 30)), test)
    assert found.coverage < 0.3
    assert found.variety == pytest.approx(0, abs=1e-6)
    assert found.distance > compared(train, test).distance


def test_noise_is_far_and_covers_nothing(digits: tuple[Records, Records]) -> None:
    train, test = digits
    noise = np.random.default_rng(0).integers(0, 256, train.features.shape, dtype=np.uint8)
    found = compared(Records(noise, train.labels, train.schema), test)
    assert found.coverage < 0.1
    assert found.distance > 10 * compared(train, test).distance


def test_tables_are_compared_column_by_column() -> None:
    rows = np.random.default_rng(0).uniform(-1, 1, (80, 4)).astype(np.float32)
    records = Records(rows, np.arange(80) % 2, Schema((4,), 2))
    found = compared(records, records)
    assert found.space == "columns"
    assert found.distance < found.distance_of_reference  # half of them are compared with themselves


def test_what_no_public_network_sees_is_not_compared() -> None:
    odd = Records(np.zeros((20, 8, 8, 2), dtype=np.uint8), np.arange(20) % 2, Schema((8, 8, 2), 2))
    assert likeness(odd, odd, None, CPU) is None
    score = evaluate(
        Product(np.zeros((2, 8, 8, 2), np.float32), np.arange(2)), odd, EvaluationSettings(steps=1, seeds=1)
    )
    assert score.likeness is None
    assert score.calibration is not None


@pytest.mark.parametrize("count", [50, 360, 1437])
def test_real_records_are_as_near_as_the_reference_however_many_they_are(count: int) -> None:
    train, reference = load("digits", split="train"), load("digits", split="test")
    found = compared(train.take(np.arange(count)), reference)
    assert 0.5 < found.distance / found.distance_of_reference < 2
