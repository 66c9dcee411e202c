"""SPS and SPS+ as a conversation with whoever can answer queries: a server with its silos, or a silo with itself.

Stage 1: summarize the records around zero, then synthesize from noise. Every later stage clips more tightly around the
statistics of the images so far, goes on from these images, and matches all releases so far.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from silosynth.common.backbones import Backbone, encode_backbone
from silosynth.common.procedural.dice import Dice
from silosynth.common.queries import Moments
from silosynth.common.schema import Schema
from silosynth.common.statistics import MomentStatistics, Statistics, encode_center
from silosynth.common.synthesis.engine import Report, Sketch, balanced_labels, synthesize
from silosynth.common.synthesis.paper_release import Release
from silosynth.common.synthesis.paper_target import PaperTarget
from silosynth.common.synthesis.sps_parameters import SpsParameters

START_STD = 0.5  # in [-1, 1], about the paper's 1 of pixels that are scaled to a deviation of 1
_START = 3  # tells this stream of a seed from others


@dataclass(frozen=True)
class Question:
    query: Moments
    artifacts: dict[str, bytes]


@dataclass(frozen=True)
class Answer:
    values: npt.NDArray[np.float64]  # summed over silos, in the order of the query's layout
    noise_std: float  # of each of them


@dataclass(frozen=True)
class Synthesized:
    images: Tensor  # (images, channels, height, width), in [-1, 1]
    labels: Tensor
    releases: list[Release]


@dataclass(frozen=True)
class Job:
    """What a conversation is about, beside its parameters. `noise_multiplier` is that of each stage."""

    schema: Schema
    noise_multiplier: float
    seed: int
    report: Report
    checkpoints: Path | None = None


def converse(job: Job, parameters: SpsParameters, backbone: Backbone) -> Generator[Question, Answer, Synthesized]:
    file = encode_backbone(backbone)
    labels = balanced_labels(job.schema.classes, parameters.images_per_class)
    images, releases = start(job.schema, len(labels), job.seed), list[Release]()
    for stage in range(parameters.stages):
        query, center = _query(job, parameters, backbone, hashlib.sha256(file).hexdigest(), stage), b""
        if stage > 0:
            center = encode_center(center_of(query, backbone, images, labels, parameters.batch))
            query = replace(query, center=hashlib.sha256(center).hexdigest())
        answer = yield Question(query, {query.backbone: file} | ({query.center: center} if center else {}))
        releases.append(Release(query, answer.values, answer.noise_std, center))
        images = synthesize(
            PaperTarget.of(backbone, releases, parameters.matching()),
            images,
            labels,
            parameters.settings(stage),
            partial(_report, job, stage, parameters.stages),
            seed=job.seed,
            workshop=parameters.workshop(),
            checkpoints=job.checkpoints and job.checkpoints / f"stage-{stage}",
        )
    return Synthesized(images, labels, releases)


def _report(job: Job, stage: int, stages: int, share: float, loss: float, sketch: Sketch) -> None:
    job.report((stage + share) / stages, loss, sketch)


def start(schema: Schema, count: int, seed: int) -> Tensor:
    height, width, channels = schema.shape
    return START_STD * Dice(seed, _START).normal(count, channels, height, width)


def center_of(query: Moments, backbone: Backbone, images: Tensor, labels: Tensor, batch: int) -> Statistics:
    """Unclipped means of the images, around which the query's records will be clipped."""
    statistics = MomentStatistics(query, backbone)
    total, weights = None, torch.zeros(1 + query.groups, dtype=torch.float64)
    for part, classes in zip(torch.split(images, batch), torch.split(labels, batch), strict=True):
        sizes = torch.bincount(classes, minlength=query.schema.classes).double()
        here = torch.cat([sizes.sum()[None], statistics.membership @ sizes])
        with torch.no_grad():
            found = _scaled(statistics.means(part, classes), here)
        total = found if total is None else Statistics(*map(torch.add, total, found))
        weights += here
    assert total is not None
    return _scaled(total, 1 / weights)


def _scaled(statistics: Statistics, factors: Tensor) -> Statistics:
    """By one factor for all records, then one for each group."""
    groups = factors[1:, None, None]
    means, seconds, class_means, class_seconds = statistics
    return Statistics(means * factors[0], seconds * factors[0], class_means * groups, class_seconds * groups[..., None])


def _query(job: Job, parameters: SpsParameters, backbone: Backbone, digest: str, stage: int) -> Moments:
    height, width, _ = job.schema.shape
    return Moments(
        schema=job.schema,
        noise_multiplier=job.noise_multiplier,
        backbone=digest,
        layers=len(backbone.tap_shapes(height, width)),
        global_dimension=parameters.global_dimension,
        class_dimension=parameters.class_dimension,
        class_layers=parameters.class_layers,
        pseudo_classes=parameters.pseudo_classes,
        classes_per_pseudo_class=parameters.classes_per_pseudo_class,
        seed=job.seed + stage,  # each stage has projections and pseudo-classes of its own
        clip=parameters.clip(stage),
        count_weight=parameters.count_weight,
        center="",
    )
