"""The target of SPS, from releases: what it asks of images, whatever classes are large, small, missing or noisy."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from support.toy_images import TOY, toy_backbone, toy_records
from torch import Tensor

from silosynth.common.backbones import Backbone, encode_backbone
from silosynth.common.datasets import Records
from silosynth.common.errors import DataError
from silosynth.common.queries import ClassCounts, Moments, encode
from silosynth.common.statistics import MomentStatistics, decode_center, encode_center, flatten
from silosynth.common.synthesis import Settings, Sketch, balanced_labels, synthesize
from silosynth.common.synthesis.paper_sps import center_of, start
from silosynth.common.synthesis.paper_stage import Stage
from silosynth.common.synthesis.paper_target import PaperTarget
from silosynth.common.synthesis.settings import Matching
from silosynth.common.synthesis.sps_parameters import SpsParameters
from silosynth.common.synthesis.stage_release import Release, from_models, to_models

LABELS = balanced_labels(3, 8)
BRIEF = Settings(steps=60, batch=24, smallest_crop=0.8, rate=0.1)
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def network() -> Backbone:
    return toy_backbone()


def pixels(records: Records) -> tuple[Tensor, Tensor]:
    features, labels = next(records.batches(len(records)))
    return torch.from_numpy(features.reshape(-1, 1, 8, 8)), torch.from_numpy(labels)


def query_of(network: Backbone, **others: Any) -> Moments:
    chosen: dict[str, Any] = {
        "schema": TOY,
        "noise_multiplier": 0.0,
        "backbone": hashlib.sha256(encode_backbone(network)).hexdigest(),
        "layers": len(network.tap_shapes(8, 8)),
        "global_dimension": 8,
        "class_dimension": 6,
        "class_layers": 3,
        "pseudo_classes": 0,
        "classes_per_pseudo_class": 0,
        "seed": 0,
        "clip": 1 / 8,
        "count_weight": 0.15,
        "center": "",
    }
    return Moments(**chosen | others)


def release_of(records: Records, network: Backbone, center: bytes = b"", noise: float = 0.0, **others: Any) -> Release:
    """What silos with these records would say, by the statistics' own code."""
    named = hashlib.sha256(center).hexdigest() if center else ""
    query = query_of(network, center=named, **others)
    images, labels = pixels(records)
    stage_center = decode_center(center, query) if center else None
    sums = MomentStatistics(query, network, stage_center).clipped_sums(images, labels)
    counts = torch.bincount(labels, minlength=3).double() * query.count_step() * query.grid()
    values: npt.NDArray[np.float64] = torch.cat([flatten(sums), counts]).numpy()
    noisy = values + np.random.default_rng(0).normal(0, noise, values.shape)
    return Release(query, noisy, noise, center)


def target_of(network: Backbone, *releases: Release, **matching: Any) -> PaperTarget:
    return PaperTarget.of(network, releases, Matching(**matching))


def quiet(share: float, loss: float, sketch: Sketch) -> None:
    pass


def test_the_records_themselves_are_what_is_wanted(network: Backbone) -> None:
    records = toy_records()
    target = target_of(network, release_of(records, network))
    assert abs(target.loss(*pixels(records))) < 0.1
    assert target.loss(start(TOY, 24, 0), LABELS) > 100


def test_images_approach_the_statistics_of_their_classes(network: Backbone) -> None:
    release = release_of(toy_records(), network)
    images = synthesize(target_of(network, release), start(TOY, 24, 0), LABELS, BRIEF, quiet)
    before, after = (target_of(network, release).loss(made, LABELS) for made in (start(TOY, 24, 0), images))
    assert after < before / 3
    seen = MomentStatistics(release.query, network).clipped_means(images, LABELS).class_means
    wanted = Stage.of(release, network, 2.0).classes.mean
    distances = (seen.float()[:, None] - wanted[None]).square().sum((2, 3))
    assert (distances.argmin(1) == torch.arange(3)).all()


class TestUnequalClasses:
    def test_balanced_images_stand_for_unbalanced_records(self, network: Backbone) -> None:
        """Each class consists of copies of the same records, in different numbers."""
        few = toy_records((8, 8, 8))
        copies = [np.tile(np.flatnonzero(few.labels == c), count) for c, count in enumerate((5, 1, 2))]
        many = few.take(np.concatenate(copies))
        target = target_of(network, release_of(many, network))
        assert abs(target.loss(*pixels(few))) < 0.1

    @pytest.mark.parametrize("others", [{}, {"pseudo_classes": 3, "classes_per_pseudo_class": 2}])
    def test_a_missing_class_is_not_matched_but_its_images_are_drawn(
        self, network: Backbone, others: dict[str, Any]
    ) -> None:
        release = release_of(toy_records((40, 0, 40)), network, **others)
        stage = Stage.of(release, network, 2.0)
        assert stage.class_weights.tolist() == ([1, 1, 1] if others else [1, 0, 1])
        images = start(TOY, 24, 0).requires_grad_(True)
        (gradient,) = torch.autograd.grad(target_of(network, release).loss(images, LABELS), images)
        assert torch.isfinite(gradient).all()
        assert (gradient[LABELS == 1].flatten(1).norm(dim=1) > 0).all()

    def test_a_class_no_larger_than_noise_weighs_nothing(self, network: Backbone) -> None:
        query = query_of(network)
        one_record = query.count_step() * query.grid()
        stage = Stage.of(release_of(toy_records((2, 30, 400)), network, noise=5 * one_record), network, 2.0)
        tiny, small, large = stage.class_weights.tolist()
        assert tiny == 0
        assert 0 < small < large <= 1

    def test_silos_without_records(self, network: Backbone) -> None:
        release = replace(release_of(toy_records(), network), values=np.zeros(query_of(network).layout().size))
        images = start(TOY, 24, 0).requires_grad_(True)
        (gradient,) = torch.autograd.grad(target_of(network, release).loss(images, LABELS), images)
        assert torch.isfinite(gradient).all()


def test_a_batch_without_some_class_leaves_its_running_moments_alone(network: Backbone) -> None:
    target = target_of(network, release_of(toy_records(), network), decay=0.5)
    images, labels = pixels(toy_records((4, 4, 4)))
    target.loss(images, labels)
    before = {name: tensor.clone() for name, tensor in target.memory().items()}
    target.loss(images[labels != 1] / 2, labels[labels != 1])
    changed = (target.memory()["classes0_first"] != before["classes0_first"]).flatten(1).any(1)
    assert changed.tolist() == [True, False, True]


class TestStages:
    def releases(self, network: Backbone) -> list[Release]:
        records = toy_records()
        query = query_of(network, seed=1)
        images, labels = pixels(toy_records(seed=5))
        center = encode_center(center_of(query, network, images, labels, batch=50))
        return [release_of(records, network), release_of(records, network, center, seed=1, clip=1 / 32)]

    def test_all_stages_are_met_by_the_records(self, network: Backbone) -> None:
        target = target_of(network, *self.releases(network))
        losses = [float(target.loss(*pixels(toy_records()))) for _ in range(8)]
        assert max(map(abs, losses)) < 0.5

    def test_the_centre_is_the_mean_of_all_batches(self, network: Backbone) -> None:
        images, labels = pixels(toy_records((20, 10, 5)))
        query = query_of(network, pseudo_classes=3, classes_per_pseudo_class=2)
        for parts, whole in zip(
            center_of(query, network, images, labels, batch=8),
            MomentStatistics(query, network).means(images, labels),
            strict=True,
        ):
            torch.testing.assert_close(parts, whole, atol=1e-6, rtol=0)

    def test_an_interrupted_job_goes_on_with_all_running_moments(
        self, network: Backbone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("silosynth.common.synthesis.part.CHECKPOINT_EVERY", 2)
        monkeypatch.setattr("silosynth.common.synthesis.part.REPORT_EVERY", 1)
        releases, settings = self.releases(network), BRIEF.model_copy(update={"steps": 6, "batch": 12})

        def made(report: Any = quiet, checkpoints: Path | None = None) -> Tensor:
            target = target_of(network, *releases, decay=0.7)
            return synthesize(target, start(TOY, 24, 0), LABELS, settings, report, checkpoints=checkpoints)

        def stumble(share: float, loss: float, sketch: Sketch) -> None:
            if share > 0.8:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            made(stumble, tmp_path)
        assert torch.equal(made(checkpoints=tmp_path), made())


class TestArchive:
    def test_a_release_that_was_kept_gives_the_same_target(self, network: Backbone) -> None:
        releases = TestStages().releases(network)
        parameters = SpsParameters(statistics="paper", steps=7)
        again, known, kept = from_models(to_models(network, parameters, releases))
        assert known == parameters
        assert target_of(again, *kept).identity == target_of(network, *releases).identity

    def test_statistics_of_another_kind_are_refused(self, network: Backbone) -> None:
        models = to_models(network, SpsParameters(), [release_of(toy_records(), network)])
        other = encode(ClassCounts(schema=TOY, noise_multiplier=1.0))
        models["statistics-0"]["query"] = np.frombuffer(other, np.uint8)
        with pytest.raises(DataError, match="of this kind"):
            from_models(models)


def test_a_worker_has_a_network_and_a_memory_of_its_own(network: Backbone) -> None:
    target = target_of(network, release_of(toy_records(), network))
    copy = target.on(CPU, autocast=True)
    assert copy.identity == target.identity
    copy.loss(start(TOY, 24, 0), LABELS)
    assert int(copy.memory()["batches"]) == 1
    assert int(target.memory()["batches"]) == 0
