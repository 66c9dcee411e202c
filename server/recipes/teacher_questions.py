"""How inputs become queries for teachers' answers."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from torch import Tensor

from silosynth.common.backbones import Backbone, backbone_for, encode_backbone
from silosynth.common.datasets.records import Features, to_bytes_range
from silosynth.common.devices import pick_device
from silosynth.common.queries import TeacherAnswers
from silosynth.common.schema import Schema
from silosynth.common.teaching.inputs import encode_inputs
from silosynth.common.teaching.views import View
from silosynth.server.recipes.base import Ask, Task
from silosynth.server.recipes.teacher_parameters import TeacherParameters

_RESPONDED = 3  # classes, as in the paper
_ANY = "0" * 64  # inputs that are yet to be made


@dataclass(frozen=True)
class Questions:
    schema: Schema
    parameters: TeacherParameters
    noise_multiplier: float
    seed: int
    backbone: Backbone | None
    """Through which networks other than a convnet see images."""

    @classmethod
    def of(cls, task: Task, parameters: TeacherParameters) -> Questions:
        backbone = None
        if task.schema.is_image:
            backbone = backbone_for(task.schema, parameters.backbone)
        return cls(task.schema, parameters, parameters.noise_for(task), task.seed, backbone)

    def view(self, network: str) -> View:
        """Of a classifier of this kind."""
        return View(self.schema, None if network == "convnet" else self.backbone, pick_device("cpu"))

    def about(self, inputs: Tensor, thought: Tensor) -> Ask:
        content = encode_inputs(in_rows(inputs, self.schema).reshape(-1, *self.schema.shape), thought.numpy())
        digest = hashlib.sha256(content).hexdigest()
        view = self.view(self.parameters.network)
        file = {} if view.backbone is None else _file(view.backbone)
        return Ask(self._query(digest, len(inputs), view, next(iter(file), "")), {digest: content, **file})

    def example(self) -> TeacherAnswers:
        view = self.view(self.parameters.network)
        return self._query(_ANY, self.parameters.inputs, view, "" if view.backbone is None else _ANY)

    def _query(self, inputs: str, number: int, view: View, backbone: str) -> TeacherAnswers:
        chosen = self.parameters
        private, named = chosen.teachers == "dp-sgd", chosen.answers == "classes"
        return TeacherAnswers(
            schema=self.schema,
            noise_multiplier=self.noise_multiplier,
            inputs=inputs,
            number=number,
            answers=chosen.answers,
            kept=min(chosen.kept or (_RESPONDED if named else self.schema.classes), self.schema.classes),
            other_weight=chosen.other_weight if chosen.answers == "gradients" else 0.0,
            teachers=chosen.teachers,
            parts=chosen.parts,
            network=chosen.network,
            backbone=backbone,
            seed=self.seed,
            steps=chosen.private_steps if private else chosen.teacher_steps,
            sampling_probability=chosen.sampling_probability if private else 0.0,
            clip=chosen.clip if private else 0.0,
            features=view.features(),
        )


def in_rows(inputs: Tensor, schema: Schema) -> npt.NDArray[np.uint8] | Features:
    """From what networks take to flat records as they travel: images in 8 bits."""
    ordered = inputs.permute(0, 2, 3, 1) if schema.is_image else inputs
    records: Features = ordered.reshape(len(inputs), -1).numpy()
    return to_bytes_range(records) if schema.is_image else records


def _file(backbone: Backbone) -> dict[str, bytes]:
    content = encode_backbone(backbone)
    return {hashlib.sha256(content).hexdigest(): content}
