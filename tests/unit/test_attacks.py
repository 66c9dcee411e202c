"""Membership inference by shadow runs, and `silosynth attack`."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy.special import ndtr, ndtri
from support.broken_silos import HONEST
from support.toy_images import TOY, toy_records
from typer.testing import CliRunner

from silosynth.common import accounting
from silosynth.common.datasets import Records, save_npz
from silosynth.common.events import SampledGaussian
from silosynth.deploy.attacks.campaign import Heard
from silosynth.deploy.attacks.canaries import canaries
from silosynth.deploy.attacks.scoring import Scorer
from silosynth.deploy.attacks.shadows import Target, attack, likelihood_ratios
from silosynth.deploy.cli import app
from silosynth.server.attacks.claims import Claim
from silosynth.server.attacks.report import AttackReport
from silosynth.server.attacks.roc import membership
from silosynth.server.collecting import collection
from silosynth.server.config import EvaluationSettings
from silosynth.server.recipes import recipe_named
from silosynth.server.recipes.base import Ask, Step, Summed, Task

BRIEF_TEACHING = {"private_steps": 2, "rounds": 1, "inputs": 8, "student_steps": 2, "final_steps": 2}
SMALL_GENG = {
    **{"generator": {"method": "merf", "generator_steps": 2, "features": 20}, "pool_per_class": 12},
    **{"extractors": 1, "extractor_steps": 2, "signals": 2, "steps": 2, "expert_steps": 1, "width": 4},
}


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
    for found in attack(replace(target(0.1), federation=without_noise), 60, 0, Claim.of(0.1, 1e-5), lambda share: None):
        assert found.area_interval[0] > 0.55
        assert found.flagged


def test_the_same_records_hide_in_honest_noise() -> None:
    """Of 80 rounds LiRA's area was 0.51 in the mean of 52 attacks, deviation 0.017; of 20 it is twice that."""
    told: list[float] = []
    for found in attack(target(1.0), 80, 0, Claim.of(1.0, 1e-5), told.append):
        assert found.members + found.outsiders == (40 if found.attack == "lira" else 80) * 36
        assert found.area == pytest.approx(0.5, abs=0.08)
        assert not found.flagged
    assert told == [pytest.approx(number / 80) for number in range(1, 81)]


def test_ratios_see_a_shift_and_nothing_else() -> None:
    dice = np.random.default_rng(0)
    coins = dice.random((60, 50)) < 0.5
    noise = dice.normal(size=coins.shape)
    areas = []
    for shift in (2, 0):
        sure = noise + shift * coins
        ratios = likelihood_ratios(sure[:30], coins[:30], sure[30:])
        areas.append(membership("lira", "", ratios, coins[30:], None).area)
    assert areas[0] > 0.85
    assert areas[1] == pytest.approx(0.5, abs=0.04)


def test_a_record_without_shadows_of_both_kinds_is_not_judged() -> None:
    sure = np.random.default_rng(0).normal(size=(4, 3))
    assert (likelihood_ratios(sure, np.ones((4, 3), dtype=np.bool_), sure) == 0).all()


def test_the_curve_and_its_rates_agree_with_counting() -> None:
    dice = np.random.default_rng(0)
    coins = np.arange(4000) % 2 == 0
    scores = dice.normal(size=4000) + coins
    found = membership("density", "", scores, coins, Claim.of(2.0, 1e-5))
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
    found = membership("nearest", "", np.zeros(200), coins, Claim.of(0.1, 0.0))
    assert found.area == 0.5
    assert not found.flagged
    assert found.tpr_at_0_1_percent is None


def test_what_is_allowed() -> None:
    assert Claim.of(1.0, 1e-5).allowed(0.01) == pytest.approx(math.e / 100 + 1e-5)
    assert Claim.of(8.0, 0.0).allowed(0.5) == pytest.approx(1 - math.exp(-8) / 2)
    assert Claim.of(math.inf, 0.0).allowed(0.001) == 1.0


@pytest.mark.parametrize("noise", [0.6, 1.0, 4.0])
def test_what_is_charged_allows_what_its_mechanism_does_and_hardly_more(noise: float) -> None:
    """The best test of one Gaussian mechanism is known: its true positives at every share of false ones."""
    charged = [SampledGaussian(noise)]
    claim = Claim.of(accounting.epsilon(charged, 1e-5), 1e-5, charged)
    for false_rate in (1e-4, 0.001, 0.01, 0.1, 0.5):
        best = float(ndtr(ndtri(false_rate) + 1 / noise))
        assert best <= claim.allowed(false_rate) <= 2.0 * best


def test_a_perfect_attack_refutes_even_a_large_epsilon() -> None:
    coins = np.arange(20_000) % 2 == 0
    charged = [SampledGaussian(0.6)]
    assert membership("lira", "", coins.astype(float), coins, Claim.of(8.0, 1e-5, charged)).flagged
    hidden = np.random.default_rng(0).normal(size=len(coins)) + coins / 0.6
    assert not membership("lira", "", hidden, coins, Claim.of(8.0, 1e-5, charged)).flagged


def heard(recipe: str, **parameters: Any) -> Heard:
    asked = recipe_named(recipe)
    return Heard.of(replace(target(1.0), recipe=asked, parameters=asked.parameters(**parameters)))


def test_of_several_questions_of_a_kind_the_dearest_is_audited() -> None:
    """SPS asks twice for sufficient statistics, the first time with a sixteenth of the budget."""
    asked = heard("sps", preset="quick")
    assert [query.mechanism for query in asked.queries] == ["sufficient_statistics"] * 2
    assert asked.dearest(1e-5) == asked.queries[1:]
    assert asked.not_audited == ()


def test_votes_and_gradients_can_be_audited() -> None:
    """An attacker's copy of the mechanism has the files that such queries name."""
    asked = heard("evolution", evolution_steps=2, candidates=8)
    asked.queries += heard("dpgeng", **SMALL_GENG).queries[-1:]
    assert {query.mechanism for query in asked.dearest(1e-5)} == {"votes", "gradient_sums"}
    votes = asked.queries[0]
    scorer = Scorer(votes, canaries(votes, 1), asked.copy.exact_answer)
    assert scorer.reach == pytest.approx(1.0, abs=0.01)


def test_what_cannot_be_audited_is_named() -> None:
    assert heard("feddpsd", **BRIEF_TEACHING).not_audited == ("teacher_answers",)


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
