"""SPS and SPS+ (Summarize, Privatize, Synthesize): images that look like the records to a public network.

Central generation: the silos send statistics of the network's activations, once for each stage, and the server makes
images that have the same ones. How many images it makes costs no privacy: the product keeps the statistics.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from silosynth.common.accounting import calibrate
from silosynth.common.backbones import Backbone, backbone_for
from silosynth.common.config import Section
from silosynth.common.errors import ConfigError
from silosynth.common.events import Event, SampledGaussian
from silosynth.common.queries import Moments, SufficientStatistics
from silosynth.common.queries.moments import layer_size
from silosynth.common.synthesis.engine import Report, Sketch
from silosynth.common.synthesis.spatial_sps import discriminant
from silosynth.common.synthesis.sps import Answer, Job, converse, questions
from silosynth.common.synthesis.sps_parameters import SpsParameters
from silosynth.common.synthesis.stage_release import Release, to_models
from silosynth.server.recipes.base import Ask, Classifier, Product, Steps, Summed, Task
from silosynth.server.recipes.outlook import Crowd, Outlook, noise_of_class_means
from silosynth.server.recipes.sps_local import local_steps
from silosynth.server.recipes.workplace import Workplace

# Of the discriminant: half was lost at 1.6 on digits, at 2.0 on Fashion-MNIST.
_BEARABLE = {"paper": 1.0, "spatial": 1.6}


class Sps:
    name = "sps"
    parameters: type[Section] = SpsParameters
    levers: tuple[dict[str, Any], ...] = ()
    post_processing = (
        "Images are optimized until a public network sees in them the noisy statistics that the silos released, summed "
        "over silos; soft labels, if any, are those of a Gaussian discriminant made of the same statistics."
    )

    def events(self, task: Task, parameters: SpsParameters, noise_multiplier: float) -> list[Event]:
        return [SampledGaussian(z) for z in parameters.noises(noise_multiplier)]

    def outlook(self, task: Task, parameters: SpsParameters, crowd: Crowd) -> Outlook:
        _check(task)
        queries = list(questions(self._job(task, parameters), parameters, _backbone(task, parameters)))
        images = task.schema.classes * parameters.images_per_class
        return Outlook(
            queries,
            _noise_to_signal(queries[-1], crowd, parameters.stages),
            _BEARABLE[parameters.statistics],
            crowd.records * parameters.stages,
            images * parameters.steps_in_all(),
        )

    def _job(self, task: Task, parameters: SpsParameters) -> Job:
        noise_multiplier = calibrate(lambda z: self.events(task, parameters, z), task.epsilon, task.delta)
        return Job(task.schema, noise_multiplier, task.seed, _report_at(task.workplace), task.workplace.checkpoints)

    def steps(self, task: Task, parameters: SpsParameters) -> Steps:
        _check(task)
        backbone = _backbone(task, parameters)
        job = self._job(task, parameters)
        if parameters.generation == "local":
            return (yield from local_steps(task, parameters, backbone, job.noise_multiplier))
        conversation = converse(job, parameters, backbone)
        question = next(conversation)
        while True:
            summed = yield Ask(question.query, question.artifacts)
            try:
                question = conversation.send(_answer(summed))
            except StopIteration as stop:
                made = stop.value
                break
        return Product(
            *_arrays(made.images, made.labels),
            soft_labels=None if made.soft_labels is None else made.soft_labels.numpy(),
            models=to_models(backbone, parameters, made.releases),
            classifier=_classifier(task, backbone, made.releases[-1]) if parameters.statistics == "spatial" else None,
        )


def _noise_to_signal(query: Moments | SufficientStatistics, crowd: Crowd, stages: int) -> float:
    """Of what is learned of one class, or of one group."""
    if isinstance(query, SufficientStatistics):
        return noise_of_class_means(query, crowd, dimension=query.dimension, bound=query.class_weight)
    # Clipping binds, and all layers together weigh as much as each group's own do.
    groups_of_a_record = query.groups * max(1, query.classes_per_pseudo_class) / query.schema.classes
    return noise_of_class_means(
        query,
        crowd,
        dimension=query.class_layers * layer_size(query.class_dimension),
        bound=query.bound / math.sqrt(1 + groups_of_a_record) * max(1, query.classes_per_pseudo_class),
        repeats=stages,
    )


def _report_at(workplace: Workplace) -> Report:
    def report(share: float, loss: float, sketch: Sketch) -> None:
        workplace.report(share, loss, lambda: _arrays(*sketch()))

    return report


def _arrays(images: Tensor, labels: Tensor) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    return np.ascontiguousarray(images.permute(0, 2, 3, 1).numpy()), labels.numpy()


def _classifier(task: Task, backbone: Backbone, release: Release) -> Classifier:
    """The discriminant by which soft labels are made: what the statistics tell without any images."""
    scores, (height, width, channels) = discriminant(backbone, release), task.schema.shape

    def classify(features: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
        images = torch.from_numpy(features).reshape(-1, height, width, channels).permute(0, 3, 1, 2)
        return scores(images).argmax(1).numpy()

    return classify


def _answer(summed: Summed) -> Answer:
    return Answer(summed.plan.layout.join(summed.blocks), math.sqrt(summed.noise_variance))


def _check(task: Task) -> None:
    if not task.schema.is_image:
        raise ConfigError("sps makes images, these records are rows of a table: choose another recipe, such as ridge")


def _backbone(task: Task, parameters: SpsParameters) -> Backbone:
    return backbone_for(task.schema, parameters.backbone)
