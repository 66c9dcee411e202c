"""Spatial SPS: what a release tells of the classes, what images are asked for, and what comes of them."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from support.toy_images import TOY, toy_backbone, toy_records

from silosynth.common.accounting import epsilon
from silosynth.common.backbones import Backbone, load_backbone
from silosynth.common.datasets import Records, load
from silosynth.common.errors import DataError
from silosynth.common.events import SampledGaussian
from silosynth.common.queries import SufficientStatistics
from silosynth.common.synthesis import Sketch
from silosynth.common.synthesis.again import synthesize_again
from silosynth.common.synthesis.spatial_model import SpatialModel
from silosynth.common.synthesis.spatial_sps import discriminant
from silosynth.common.synthesis.spatial_target import SpatialTarget
from silosynth.common.synthesis.sps import Answer, Job, Question, Synthesized, converse, questions
from silosynth.common.synthesis.sps_parameters import SpsParameters
from silosynth.common.synthesis.stage_release import Release, to_models
from silosynth.deploy.inprocess import InProcess
from silosynth.server.recipes.base import Ask

BRIEF: dict[str, Any] = {"images_per_class": 8, "steps": 25, "labels": "gaussian"}
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def network() -> Backbone:
    return toy_backbone()


def quiet(share: float, loss: float, sketch: Sketch) -> None:
    pass


def job(noise: float = 0.0) -> Job:
    return Job(TOY, noise, 0, quiet)


def answered(conversation: Generator[Question, Answer, Synthesized], *shards: Records) -> Synthesized:
    """By silos in this process."""
    federation = InProcess(list(shards))
    question = next(conversation)
    while True:
        summed = federation.ask(Ask(question.query, question.artifacts))
        values = summed.plan.layout.join(summed.blocks)
        try:
            question = conversation.send(Answer(values, math.sqrt(summed.noise_variance)))
        except StopIteration as stop:
            made: Synthesized = stop.value
            return made


def made_of(network: Backbone, *shards: Records, noise: float = 0.0, **parameters: Any) -> Synthesized:
    return answered(converse(job(noise), SpsParameters(**BRIEF | parameters), network), *shards)


@pytest.mark.parametrize("stages", [1, 2])
class TestSynthesis:
    def test_images_and_unseen_records_are_of_their_class(self, stages: int) -> None:
        """To the discriminant that the statistics hold."""
        network = load_backbone("procedural-grey")
        train, test = (load("digits", split=split) for split in ("train", "test"))
        parameters = SpsParameters(**BRIEF | {"steps": 60}, stages=stages)
        made = answered(converse(Job(train.schema, 0.0, 0, quiet), parameters, network), train)
        assert made.soft_labels is not None
        assert (made.soft_labels.argmax(1) == made.labels).float().mean() > 0.8
        torch.testing.assert_close(made.soft_labels.sum(1), torch.ones(80))
        assert made.images.abs().max() <= 1
        features, labels = next(test.batches(len(test)))
        scores = discriminant(network, made.releases[-1])(torch.from_numpy(features).reshape(-1, 1, 8, 8))
        assert (scores.argmax(1).numpy() == labels).mean() > 0.9

    def test_two_silos_say_what_one_says(self, network: Backbone, stages: int) -> None:
        records = toy_records()
        halves = [records.take(np.arange(start, len(records), 2)) for start in (0, 1)]
        one, two = made_of(network, records, stages=stages), made_of(network, *halves, stages=stages)
        np.testing.assert_allclose(one.releases[-1].values, two.releases[-1].values, atol=1e-3)

    def test_nobody_has_a_class(self, network: Backbone, stages: int) -> None:
        made = made_of(network, toy_records((40, 0, 40)), toy_records((5, 0, 80)), stages=stages)
        assert made.soft_labels is not None
        assert torch.isfinite(made.images).all()
        assert made.soft_labels[:, 1].max() < 0.5

    def test_noise_alone_ends_in_images_too(self, network: Backbone, stages: int) -> None:
        made = made_of(network, toy_records(), noise=1e4, stages=stages)
        assert torch.isfinite(made.images).all()


class TestTarget:
    def test_the_records_themselves_are_nearly_what_is_wanted(self, network: Backbone) -> None:
        records = toy_records()
        model = SpatialModel.of(made_of(network, records, steps=1).releases[-1])
        features, labels = next(records.batches(len(records)))
        target = SpatialTarget(network, model, guide=0.0)
        images, classes = torch.from_numpy(features).reshape(-1, 1, 8, 8), torch.from_numpy(labels)
        assert target.loss(images, classes) < 0.1
        assert target.loss(images, classes.roll(40)) > 1
        guided = SpatialTarget(network, model, guide=1.0)
        assert guided.loss(images, classes.roll(40)) > target.loss(images, classes.roll(40)) + 1
        assert guided.identity != target.identity

    def test_a_worker_has_a_network_of_its_own(self, network: Backbone) -> None:
        target = SpatialTarget(network, SpatialModel.of(made_of(network, toy_records(), steps=1).releases[-1]), 0.0)
        assert target.on(CPU, autocast=True).identity == target.identity

    def test_pure_noise_has_no_signal(self) -> None:
        generator, size = np.random.default_rng(0), 80
        query = SufficientStatistics(
            schema=TOY, noise_multiplier=1.0, center=0.0, clip=1.0, class_weight=1.0, count_weight=1.0,
            backbone="0" * 64, features=size,
        )  # fmt: skip
        values = generator.normal(0, 1, query.layout().size)
        values[-3:] += 10_000
        model = SpatialModel.of(Release(query, values, 1.0))
        assert model.signal().max() < 1.1 * 2 * model.noise
        assert (model.signal() > 0).sum() <= 2


class TestStages:
    def test_a_second_stage_is_clipped_about_the_first_ones_means(self, network: Backbone) -> None:
        parameters = SpsParameters(**BRIEF)
        first, last = questions(job(1.0), parameters, network)
        assert isinstance(first, SufficientStatistics)
        assert isinstance(last, SufficientStatistics)
        assert (first.sums_only, last.sums_only, first.clip, last.clip) == (True, False, 1.0, 0.5)
        made = made_of(network, toy_records(), noise=1e-6)
        assert made.releases[1].query == replace(last, noise_multiplier=made.releases[1].query.noise_multiplier,
                                                 centers=made.releases[1].query.centers)  # fmt: skip

    @pytest.mark.parametrize("chosen", [{}, {"stages": 1}, {"statistics": "paper", "stages": 5}])
    def test_all_together_cost_what_one_mechanism_costs(self, chosen: dict[str, Any]) -> None:
        noises = SpsParameters(**chosen).noises(3.7)
        together = epsilon([SampledGaussian(z) for z in noises], 1e-5)
        assert together <= epsilon([SampledGaussian(3.7)], 1e-5) + 1e-9
        assert together == pytest.approx(epsilon([SampledGaussian(3.7)], 1e-5), rel=1e-3)


@pytest.mark.parametrize("statistics", ["spatial", "paper"])
class TestAgain:
    def test_more_images_from_the_same_release(self, network: Backbone, statistics: str) -> None:
        chosen = {"statistics": statistics, "labels": "gaussian" if statistics == "spatial" else "hard"}
        chosen |= {} if statistics == "spatial" else {"global_dimension": 8, "class_dimension": 6}
        parameters = SpsParameters(**BRIEF | chosen | {"steps": 5})
        made = answered(converse(job(), parameters, network), toy_records())
        models = to_models(network, parameters, made.releases)
        images, labels, soft = synthesize_again(models, 11, 3, quiet)
        assert images.shape == (33, 8, 8, 1)
        assert images.dtype == np.uint8
        assert np.bincount(labels).tolist() == [11, 11, 11]
        assert (soft is None) == (statistics == "paper")

    def test_other_releases_hold_no_statistics(self, statistics: str) -> None:
        with pytest.raises(DataError, match="no statistics"):
            synthesize_again({statistics: {}}, 1, 0, quiet)


@pytest.mark.parametrize(
    ("chosen", "reason"),
    [
        ({"stages": 3}, "one or two stages"),
        ({"gamma": 1.0, "pseudo_classes": 20}, "gamma, pseudo_classes mean nothing"),
        ({"statistics": "paper", "labels": "gaussian"}, "need statistics"),
        ({"statistics": "paper", "stages": 2, "clips": [1.0]}, "there are 2 stages"),
        ({"preset": "paper", "statistics": "spatial"}, "no preset"),
    ],
)
def test_options_that_would_do_nothing_are_refused(chosen: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        SpsParameters(**chosen)
