"""SPS and SPS+ with statistics that keep the layout of images, as a conversation with whoever can answer queries.

SPS: one query, class means and a common second moment of features. SPS+ first asks for class means alone, with a
sixteenth of the budget, and then for the statistics of what is left of features about these, cut to half the length:
the noise of a second moment falls with the square of that length.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from silosynth.common.backbones import Backbone, encode_backbone
from silosynth.common.queries import SufficientStatistics
from silosynth.common.schema import Schema
from silosynth.common.statistics.centers import encode_centers
from silosynth.common.statistics.spatial import SpatialFeatures, thumbnail_shape
from silosynth.common.synthesis.conversation import Answer, Job, Question, Synthesized
from silosynth.common.synthesis.engine import balanced_labels, synthesize
from silosynth.common.synthesis.spatial_model import SpatialModel, class_means
from silosynth.common.synthesis.spatial_target import SpatialTarget
from silosynth.common.synthesis.sps_parameters import SpsParameters
from silosynth.common.synthesis.stage_release import Release

_SCORED_TOGETHER = 500
_CLASS_WEIGHT = 0.5  # of class sums beside second moments: the latter need more exactness
_COUNT_WEIGHT = 0.25
_RADIUS = 0.5  # of features about their class's mean; chosen on the training part of Fashion-MNIST, as the two above


def spatial_conversation(
    job: Job, parameters: SpsParameters, backbone: Backbone
) -> Generator[Question, Answer, Synthesized]:
    *first, last = spatial_queries(job, parameters, backbone)
    artifacts, releases, centers = {last.backbone: encode_backbone(backbone)}, list[Release](), b""
    for query in first:
        answer = yield Question(query, artifacts)
        releases.append(Release(query, answer.values, answer.noise_std))
        centers = encode_centers(class_means(releases[0]).numpy())
        last = replace(last, centers=hashlib.sha256(centers).hexdigest())
        artifacts = artifacts | {last.centers: centers}
    answer = yield Question(last, artifacts)
    releases.append(Release(last, answer.values, answer.noise_std, centers))
    return spatial_images(job, parameters, backbone, releases)


def spatial_queries(job: Job, parameters: SpsParameters, backbone: Backbone) -> list[SufficientStatistics]:
    """One for each stage; that of the second names no centres yet."""
    *first, last = parameters.noises(job.noise_multiplier)
    whole = SufficientStatistics(
        schema=job.schema,
        noise_multiplier=last,
        center=0.0,
        clip=_RADIUS if first else 1.0,
        class_weight=_CLASS_WEIGHT,
        count_weight=_COUNT_WEIGHT,
        backbone=hashlib.sha256(encode_backbone(backbone)).hexdigest(),
        features=SpatialFeatures(backbone).size(job.schema.shape),
    )
    return [replace(whole, noise_multiplier=noise, clip=1.0, sums_only=True) for noise in first] + [whole]


def spatial_images(job: Job, parameters: SpsParameters, backbone: Backbone, releases: list[Release]) -> Synthesized:
    """As many as the parameters say, from the last release."""
    model = SpatialModel.of(releases[-1])
    labels = balanced_labels(job.schema.classes, parameters.images_per_class)
    images = synthesize(
        SpatialTarget(backbone, model, parameters.guide),
        _start(model, labels, job.schema, job.seed),
        labels,
        parameters.settings(0),
        job.report,
        seed=job.seed,
        workshop=parameters.workshop(),
        checkpoints=job.checkpoints,
    )
    if parameters.labels == "hard":
        return Synthesized(images, labels, releases)
    published = ((images + 1) * 127.5).round() / 127.5 - 1  # in 8 bits
    return Synthesized(images, labels, releases, discriminant(backbone, releases[-1])(published).softmax(1))


def _start(model: SpatialModel, labels: Tensor, schema: Schema, seed: int) -> Tensor:
    """The thumbnails of imagined records, enlarged: where things are is known before the first step."""
    height, width, _ = schema.shape
    shape = thumbnail_shape(schema.shape)
    size = torch.Size(shape).numel()
    thumbnails = model.drawn(labels, seed)[:, -size:].reshape(-1, *shape) * size**0.5
    return F.interpolate(thumbnails, size=(height, width), mode="bilinear").clamp(-1, 1)


def discriminant(backbone: Backbone, release: Release) -> Callable[[Tensor], Tensor]:
    """From images in [-1, 1] to class scores, by the Gaussians that the release tells of."""
    features, model = SpatialFeatures(backbone), SpatialModel.of(release)

    @torch.inference_mode()
    def scores(images: Tensor) -> Tensor:
        parts = torch.split(images, _SCORED_TOGETHER)
        return torch.cat([model.logits(features(part.to(features.device)).cpu()) for part in parts])

    return scores
