"""SPS and SPS+ with the paper's statistics, as a conversation with whoever can answer queries.

Stage 1: summarize the records around zero, then synthesize from noise. Every later stage clips more tightly around the
statistics of the images so far, goes on from these images, and matches all releases so far.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator
from dataclasses import replace

import torch
from torch import Tensor

from silosynth.common.backbones import Backbone, encode_backbone
from silosynth.common.procedural.dice import Dice
from silosynth.common.queries import Moments
from silosynth.common.schema import Schema
from silosynth.common.statistics import MomentStatistics, Statistics, encode_center
from silosynth.common.synthesis.conversation import Answer, Job, Question, Synthesized
from silosynth.common.synthesis.engine import balanced_labels, synthesize
from silosynth.common.synthesis.paper_target import PaperTarget
from silosynth.common.synthesis.sps_parameters import SpsParameters
from silosynth.common.synthesis.stage_release import Release

START_STD = 0.5  # in [-1, 1], about the paper's 1 of pixels that are scaled to a deviation of 1
_START = 3  # tells this stream of a seed from others


def paper_conversation(
    job: Job, parameters: SpsParameters, backbone: Backbone
) -> Generator[Question, Answer, Synthesized]:
    file = encode_backbone(backbone)
    labels = balanced_labels(job.schema.classes, parameters.images_per_class)
    images, releases = start(job.schema, len(labels), job.seed), list[Release]()
    for stage, query in enumerate(paper_queries(job, parameters, backbone)):
        center = b""
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
            job.stage_report(stage, parameters.stages),
            seed=job.seed,
            workshop=parameters.workshop(),
            checkpoints=job.checkpoints and job.checkpoints / f"stage-{stage}",
        )
    return Synthesized(images, labels, releases)


def paper_images(job: Job, parameters: SpsParameters, backbone: Backbone, releases: list[Release]) -> Synthesized:
    """As many as the parameters say, from noise and all releases at once."""
    labels = balanced_labels(job.schema.classes, parameters.images_per_class)
    images = synthesize(
        PaperTarget.of(backbone, releases, parameters.matching()),
        start(job.schema, len(labels), job.seed),
        labels,
        parameters.settings(0),
        job.report,
        seed=job.seed,
        workshop=parameters.workshop(),
        checkpoints=job.checkpoints,
    )
    return Synthesized(images, labels, releases)


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


def paper_queries(job: Job, parameters: SpsParameters, backbone: Backbone) -> list[Moments]:
    """One for each stage; those after the first name no centre yet."""
    height, width, _ = job.schema.shape
    digest = hashlib.sha256(encode_backbone(backbone)).hexdigest()
    return [
        Moments(
            schema=job.schema,
            noise_multiplier=noise_multiplier,
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
        for stage, noise_multiplier in enumerate(parameters.noises(job.noise_multiplier))
    ]
