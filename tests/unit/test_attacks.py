"""Membership inference by shadow runs, and `silosynth attack`."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.broken_silos import HONEST
from support.toy_images import TOY, toy_records
from typer.testing import CliRunner

from silosynth.common.datasets import Records, save_npz
from silosynth.deploy.attacks.shadows import Target, attack, likelihood_ratios
from silosynth.deploy.cli import app
from silosynth.server.attacks.report import AttackReport
from silosynth.server.attacks.roc import allowed, membership
from silosynth.server.collecting import collection
from silosynth.server.config import EvaluationSettings
from silosynth.server.recipes import recipe_named
from silosynth.server.recipes.base import Ask, Step, Summed, Task


def without_noise(shards: list[Records]) -> Callable[[Step], Summed]:
    def ask(step: Step) -> Summed:
        collected = collection(Ask.of(step).query)
        for number, shard in enumerate(shards):
            collected.add(str(number), HONEST.exact_answer(Ask.of(step).query, shard))
        return collected.all()

    return ask


def target(epsilon: float) -> Target:
    recipe = recipe_named("ldpdc")
    return Target(
        recipe=recipe,
        parameters=recipe.parameters(mixtures=2, sampling_probability=1.0, denoise=False),
        task=Task(TOY, epsilon, 1e-5),
        candidates=toy_records((12, 12, 12)),
        public=toy_records((40, 40, 40), seed=1),
        silos=2,
        partition="iid",
        model=EvaluationSettings(seeds=1, steps=20, model="linear"),
    )


def test_few_records_without_noise_are_recognized_whatever_is_claimed() -> None:
    """Of 36 records each moves its class's mean visibly."""
    for found in attack(replace(target(0.1), federation=without_noise), 60, 0, lambda share: None):
        assert found.area_interval[0] > 0.55
        assert found.flagged


def test_the_same_records_hide_in_honest_noise() -> None:
    told: list[float] = []
    for found in attack(target(1.0), 20, 0, told.append):
        assert found.members + found.outsiders == (10 if found.attack == "lira" else 20) * 36
        assert found.area == pytest.approx(0.5, abs=0.08)
        assert not found.flagged
    assert told == [pytest.approx(number / 20) for number in range(1, 21)]


def test_ratios_see_a_shift_and_nothing_else() -> None:
    dice = np.random.default_rng(0)
    coins = dice.random((60, 50)) < 0.5
    noise = dice.normal(size=coins.shape)
    areas = []
    for shift in (2, 0):
        sure = noise + shift * coins
        ratios = likelihood_ratios(sure[:30], coins[:30], sure[30:])
        areas.append(membership("lira", "", ratios, coins[30:], epsilon=1.0, delta=0.0).area)
    assert areas[0] > 0.85
    assert areas[1] == pytest.approx(0.5, abs=0.04)


def test_a_record_without_shadows_of_both_kinds_is_not_judged() -> None:
    sure = np.random.default_rng(0).normal(size=(4, 3))
    assert (likelihood_ratios(sure, np.ones((4, 3), dtype=np.bool_), sure) == 0).all()


def test_the_curve_and_its_rates_agree_with_counting() -> None:
    dice = np.random.default_rng(0)
    coins = np.arange(4000) % 2 == 0
    scores = dice.normal(size=4000) + coins
    found = membership("density", "", scores, coins, epsilon=2.0, delta=1e-5)
    assert found.area == pytest.approx(0.76, abs=0.02)
    outside = np.sort(scores[~coins])
    assert found.tpr_at_1_percent is not None
    assert found.tpr_at_1_percent.value == (scores[coins] > outside[-21]).mean()
    assert found.tpr_at_1_percent.low < found.tpr_at_1_percent.value < found.tpr_at_1_percent.high
    assert found.tpr_at_1_percent.allowed == pytest.approx(math.exp(2) * 0.01 + 1e-5)
    assert found.tpr_at_0_1_percent is not None
    points = [(point.false_positive_rate, point.true_positive_rate) for point in found.roc]
    assert points == sorted(points)
    assert points[-1] == (1.0, 1.0)


def test_ties_are_guesses() -> None:
    coins = np.arange(200) % 2 == 0
    found = membership("nearest", "", np.zeros(200), coins, epsilon=0.1, delta=0.0)
    assert found.area == 0.5
    assert not found.flagged
    assert found.tpr_at_0_1_percent is None


def test_what_is_allowed() -> None:
    assert allowed(0.01, 1.0, 1e-5) == pytest.approx(math.e / 100 + 1e-5)
    assert allowed(0.5, 8.0, 0.0) == allowed(0.001, math.inf, 0.0) == 1.0


@pytest.mark.parametrize("form", ["text", "json"])
def test_the_command_writes_report_and_curves(form: str, tmp_path: Path) -> None:
    data, out = tmp_path / "toys.npz", tmp_path / "out"
    save_npz(toy_records((30, 30, 30)), data)
    options = ["--classes", "3", "--recipe", "prototypes", "--silos", "2", "--runs", "4", "--steps", "5"]
    done = CliRunner().invoke(app, ["attack", "--data", str(data), *options, "--out", str(out), "--format", form])
    assert done.exit_code == 0, done.stderr
    report = AttackReport.model_validate_json((out / "attacks.json").read_text())
    assert [found.attack for found in report.membership] == ["lira", "density", "nearest"]
    assert [audit.method for audit in report.audits] == ["one run", "repeated"]
    assert report.commit
    if form == "json":
        assert json.loads(done.stdout) == json.loads((out / "attacks.json").read_text())
    with Image.open(out / "attacks.png") as picture:
        assert picture.size > (400, 400)
    assert "<svg" in (out / "attacks.svg").read_text()
