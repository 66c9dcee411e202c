"""SPS and SPS+ (Summarize, Privatize, Synthesize): images that look like the records to a public network.

Central generation: the silos send moments of the network's activations, once for each stage, and the server makes
images that have the same ones. How many images it makes costs no privacy: the product keeps the statistics.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from silosynth.common.accounting import calibrate
from silosynth.common.backbones import load_backbone
from silosynth.common.config import Section
from silosynth.common.errors import ConfigError
from silosynth.common.events import Event, SampledGaussian
from silosynth.common.queries import Moments
from silosynth.common.queries.moments import layer_size
from silosynth.common.synthesis.engine import Report, Sketch
from silosynth.common.synthesis.paper_release import to_models
from silosynth.common.synthesis.sps import Answer, Job, converse
from silosynth.common.synthesis.sps_parameters import SpsParameters
from silosynth.server.recipes.base import Ask, Product, Steps, Summed, Task
from silosynth.server.recipes.outlook import Crowd, Outlook, noise_of_class_means
from silosynth.server.recipes.workplace import Workplace

_BEARABLE = 1.0


class Sps:
    name = "sps"
    parameters: type[Section] = SpsParameters
    levers: tuple[dict[str, Any], ...] = ({"class_dimension": 16}, {"class_layers": 1})

    def events(self, task: Task, parameters: SpsParameters, noise_multiplier: float) -> list[Event]:
        return [SampledGaussian(noise_multiplier)] * parameters.stages

    def outlook(self, task: Task, parameters: SpsParameters, crowd: Crowd) -> Outlook:
        _check(task, parameters)
        backbone = load_backbone(parameters.backbone or _shipped(task))
        query = next(converse(self._job(task, parameters), parameters, backbone)).query
        images = task.schema.classes * parameters.images_per_class
        return Outlook(
            [query] * parameters.stages,
            _noise_to_signal(query, crowd, parameters.stages),
            _BEARABLE,
            crowd.records * parameters.stages,
            images * sum(parameters.settings(stage).steps for stage in range(parameters.stages)),
        )

    def _job(self, task: Task, parameters: SpsParameters) -> Job:
        noise_multiplier = calibrate(lambda z: self.events(task, parameters, z), task.epsilon, task.delta)
        return Job(task.schema, noise_multiplier, task.seed, _report_at(task.workplace), task.workplace.checkpoints)

    def steps(self, task: Task, parameters: SpsParameters) -> Steps:
        _check(task, parameters)
        backbone = load_backbone(parameters.backbone or _shipped(task))
        conversation = converse(self._job(task, parameters), parameters, backbone)
        question = next(conversation)
        while True:
            summed = yield Ask(question.query, question.artifacts)
            try:
                question = conversation.send(_answer(summed))
            except StopIteration as stop:
                made = stop.value
                break
        return Product(*_arrays(made.images, made.labels), models=to_models(backbone, made.releases))


def _noise_to_signal(query: Moments, crowd: Crowd, stages: int) -> float:
    """Of the moments of one group. Clipping binds, and all layers together weigh as much as each group's own do."""
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


def _answer(summed: Summed) -> Answer:
    return Answer(summed.plan.layout.join(summed.blocks), math.sqrt(summed.noise_variance))


def _check(task: Task, parameters: SpsParameters) -> None:
    if not task.schema.is_image:
        raise ConfigError("sps makes images, these records are rows of a table: choose another recipe, such as ridge")
    if parameters.statistics == "spatial":
        raise ConfigError('statistics = "spatial" cannot be asked for yet: choose "paper"')
    if parameters.labels == "gaussian":
        raise ConfigError('labels = "gaussian" cannot be made yet: choose "hard"')


def _shipped(task: Task) -> str:
    return "procedural-grey" if task.schema.shape[2] == 1 else "procedural-colour"
