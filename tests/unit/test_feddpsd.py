"""FedDPSD in one process: what the student, the generator and the plan are worth."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from support.entropies import SeededEntropy

from silosynth.common.config import parse
from silosynth.common.datasets import Records, load
from silosynth.common.devices import pick_device
from silosynth.common.errors import ConfigError
from silosynth.common.partition import partition
from silosynth.common.schema import Schema
from silosynth.common.teaching.views import View, draw_classifier
from silosynth.deploy.inprocess import InProcess
from silosynth.server.advice import advise
from silosynth.server.planning import Proposal, Verdict, what_if
from silosynth.server.recipes import feddpsd, recipe_named
from silosynth.server.recipes.base import Product, Summed, Task, drive
from silosynth.server.recipes.outlook import Crowd
from silosynth.server.recipes.teacher_parameters import TeacherParameters
from silosynth.server.synthesis import pupil
from silosynth.server.synthesis.committee import Committee
from silosynth.server.synthesis.generator import Generator
from silosynth.server.synthesis.pupil import Pupil, on_simplex

QUICK = {
    "rounds": 3,
    "inputs": 256,
    "student_steps": 250,
    "final_steps": 500,
    "generator_steps": 2,
    "records_per_class": 3,
}
FASHION = Schema((28, 28, 1), 10)


@pytest.fixture(scope="module")
def train() -> Records:
    return load("digits", split="train")


def run(silos: list[Records], budget: float, **parameters: Any) -> Product:
    recipe = recipe_named("feddpsd")
    steps = recipe.steps(Task(silos[0].schema, budget, 1e-5), recipe.parameters(**QUICK | parameters))
    return drive(steps, InProcess(silos, SeededEntropy()).ask)


def accuracy(product: Product) -> float:
    test = load("digits", split="test")
    assert product.classifier is not None
    return float((product.classifier(test.flat()) == test.labels).mean())


class TestTheGame:
    @pytest.mark.parametrize("silos", [1, 3])
    def test_without_noise_the_student_learns_of_images_nobody_holds(self, silos: int, train: Records) -> None:
        shards = [train.take(part) for part in partition("iid", train.labels, silos, 0)]
        product = run(shards, math.inf, teachers="plain", teacher_steps=400)
        assert accuracy(product) > 0.85
        assert np.bincount(product.labels).tolist() == [3] * 10
        assert product.soft_labels is not None
        np.testing.assert_allclose(product.soft_labels.sum(axis=1), 1, atol=1e-5)
        assert product.models.keys() == {"student", "generator"}

    def test_training_by_dp_sgd_teaches_at_a_usual_epsilon(self, train: Records) -> None:
        assert accuracy(run([train], 8.0, private_steps=60)) > 0.6

    def test_responses_without_noise_teach_too(self, train: Records) -> None:
        product = run([train], math.inf, teachers="plain", teacher_steps=400, answers="classes", kept=10)
        assert accuracy(product) > 0.6

    @pytest.mark.parametrize("generated", [0.0, 1.0])
    def test_inputs_may_all_be_public_or_all_be_made(self, generated: float, train: Records) -> None:
        product = run([train.take(np.arange(50))], 8.0, generated=generated, private_steps=2, inputs=8, kept=10)
        assert np.isfinite(product.features).all()

    def test_the_student_remembers_so_much_and_no_more(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(pupil, "_REMEMBERED", 10)
        schema = Schema((3,), 3)
        student = Pupil(View(schema, None, pick_device("cpu")), draw_classifier("linear", schema, 0, 0), 0)
        for _ in range(5):
            student.remember(torch.zeros(4, 3), torch.full((4, 3), 1 / 3))
        assert sum(map(len, student._targets)) == sum(map(len, student._seen)) == 8
        assert math.isfinite(student.study(3))

    def test_responses_are_those_of_plain_teachers(self) -> None:
        with pytest.raises(ConfigError, match="set both"):
            parse(TeacherParameters, {"answers": "classes"}, "run.toml")


class TestTargets:
    def summed(self, answers: list[list[float]], silos: int) -> Summed:
        return Summed({"answers": np.array(answers)}, silos, plan=None)  # type: ignore[arg-type]

    def test_the_mean_answer_moves_the_student(self) -> None:
        parts = {"teachers": "sub-teachers", "sub_teachers": 4}
        thought, chosen = torch.tensor([[0.5, 0.5, 0.0]]), TeacherParameters(answers="gradients", **parts)
        moved = feddpsd._targets(self.summed([[-0.8, 0.8, 0.0]], 2), thought, chosen)
        torch.testing.assert_close(moved, torch.tensor([[0.6, 0.4, 0.0]]))

    def test_probabilities_are_learned_as_they_are(self) -> None:
        chosen = TeacherParameters(sub_teachers=4, teachers="sub-teachers")
        told = feddpsd._targets(self.summed([[4.8, 2.4, 0.8]], 2), torch.tensor([[0.0, 0.0, 1.0]]), chosen)
        torch.testing.assert_close(told, torch.tensor([[0.6, 0.3, 0.1]]))

    def test_responses_are_votes_for_the_classes_the_student_named(self) -> None:
        chosen = TeacherParameters(answers="classes", teachers="plain", kept=2)
        votes = feddpsd._targets(self.summed([[3, 1]], 4), torch.tensor([[0.1, 0.3, 0.6]]), chosen)
        torch.testing.assert_close(votes, torch.tensor([[0.0, 0.25, 0.75]]))

    def test_the_nearest_probabilities_are_found(self) -> None:
        points = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
        nearest = on_simplex(points)
        torch.testing.assert_close(nearest.sum(1), torch.ones(200))
        assert nearest.min() >= 0
        torch.testing.assert_close(on_simplex(nearest), nearest)
        others = torch.distributions.Dirichlet(torch.ones(4)).sample((500,))
        for point, found in zip(points, nearest, strict=True):
            assert (point - found).norm() <= (point - others).norm(dim=1).min() + 1e-6


class TestCommittee:
    def test_its_opinion_is_the_mean_of_its_members(self) -> None:
        schema, seen = Schema((4,), 3), torch.randn(7, 4, generator=torch.Generator().manual_seed(0))
        committee = Committee("linear", 5, schema, 0, 3)
        members = committee.network(seen).reshape(7, 5, 3).softmax(2)
        torch.testing.assert_close(committee(seen).softmax(1), members.mean(1))
        assert (members - members.mean(1, keepdim=True)).abs().max() > 0

    @pytest.mark.parametrize(("teachers", "answers", "best"), [(1, 40, 1), (4, 2000, 8)])
    def test_the_student_has_as_many_members_as_answers_call_for(self, teachers: int, answers: int, best: int) -> None:
        schema, dice = Schema((6,), 3), torch.Generator().manual_seed(0)
        inputs = torch.randn(answers, 6, generator=dice)
        told = (inputs @ torch.randn(teachers, 6, 3, generator=dice)).softmax(2).mean(0)
        student = Pupil(View(schema, None, pick_device("cpu")), Committee("linear", 1, schema, 0, 0), 0)
        student.remember(inputs, told)
        committees = {members: Committee("linear", members, schema, 0, 0) for members in (8, 1)}
        student.graduate([(committee, 0.0) for committee in committees.values()], 1000)
        assert student.classifier is committees[best]


class TestGenerator:
    """The two corrections of Eq. (8)."""

    def loss(self, made: list[list[float]], targets: list[int], scale: float = 1.0) -> float:
        """Of a generator that makes these rows, as seen by a student whose classes are the columns."""
        schema = Schema((3,), 3)
        student = Pupil(View(schema, None, pick_device("cpu")), draw_classifier("linear", schema, 0, 0), 0)
        with torch.no_grad():
            next(student.classifier.parameters()).copy_(torch.eye(3) * 20 / scale)
        generator = Generator(schema, len(made), 0)
        generator.network = torch.nn.Identity()
        generator.latents = torch.tensor(made) * scale
        return float(generator._loss(student, torch.eye(3)[targets]).detach())

    def test_a_batch_of_all_classes_is_better_than_one_of_the_same(self) -> None:
        assert self.loss(np.eye(3).tolist(), [0, 1, 2]) < self.loss([[1.0, 0, 0]] * 3, [0, 0, 0]) - 1

    def test_strong_features_are_better_than_weak_ones(self) -> None:
        weak, strong = (self.loss(np.eye(3).tolist(), [0, 1, 2], scale) for scale in (1.0, 3.0))
        assert strong < weak

    @pytest.mark.parametrize("shape", [(8, 8, 1), (9, 11, 3), (5,)])
    def test_it_makes_records_of_any_shape_within_the_box(self, shape: tuple[int, ...]) -> None:
        schema = Schema(shape, 4)
        generator = Generator(schema, 6, 0)
        made = generator.sample(generator.latents)
        assert made.numel() == 6 * schema.dimension
        assert made.abs().max() <= 1


class TestPlan:
    def proposed(self, epsilon: float, **parameters: Any) -> Proposal:
        recipe = recipe_named("feddpsd")
        return Proposal(recipe, Task(FASHION, epsilon, 1e-5), recipe.parameters(**parameters), Crowd(5, 12_000))

    def test_it_warns_of_plain_teachers_and_says_what_would_help(self) -> None:
        proposal = self.proposed(1.0, teachers="plain")
        outlook = proposal.outlook()
        assert Verdict.of(outlook) is Verdict.too_little
        assert "records a silo" not in advise(proposal, outlook).words
        changes = dict(what_if(proposal, outlook))
        assert {"rounds = 2", "teachers = sub-teachers, sub_teachers = 100", "teachers = dp-sgd"} <= changes.keys()
        assert Verdict.of(changes["teachers = dp-sgd"]) is Verdict.enough

    def test_noise_falls_with_fewer_questions_more_sub_teachers_and_more_silos(self) -> None:
        proposal = self.proposed(10.0, teachers="sub-teachers", sub_teachers=20, rounds=8)
        before = proposal.outlook().noise_to_signal
        for change in ({"sub_teachers": 40}, {"rounds": 2}, {"inputs": 256}):
            chosen = proposal.parameters.model_copy(update=change)
            assert replace(proposal, parameters=chosen).outlook().noise_to_signal == pytest.approx(before / 2, rel=0.01)
        crowd = replace(proposal, crowd=Crowd(20, 12_000)).outlook().noise_to_signal
        assert crowd == pytest.approx(before / 2)
