"""What can be chosen about FedDPSD, what is asked of silos then, and how much of their answers is noise."""

from __future__ import annotations

import math
from typing import Literal, Self

from pydantic import Field, model_validator

from silosynth.common.accounting import calibrate
from silosynth.common.config import Choices
from silosynth.common.events import Event, LabelResponse, SampledGaussian
from silosynth.common.queries import LabelTraining, PrivateTraining, TeacherAnswers
from silosynth.server.recipes.base import Task
from silosynth.server.recipes.outlook import Crowd, Outlook

# About the noise at which a student loses half of what it learns without: digits, two silos, 512 inputs, when answers
# were still stretched to length 1. That of label-dp is a guess.
_BEARABLE = {"plain": 1.0, "sub-teachers": 1.0, "dp-sgd": 0.35, "label-dp": 0.5}


class TeacherParameters(Choices):
    """The paper: plain teachers, rounds = 200, inputs = 256, kept = 3, other_weight = 8.

    `plain` teachers' answers are noised for a guarantee that covers a whole silo at once, which leaves nothing to learn
    unless epsilon is large. `sub-teachers` and `dp-sgd` protect single records; with `dp-sgd` training alone is charged
    and any number of answers is free. `label-dp` likewise, but protects labels only: of silos that declare all else
    about their records public.
    """

    teachers: Literal["plain", "sub-teachers", "dp-sgd", "label-dp"] = Field(
        "dp-sgd", description="how silos train and answer"
    )
    answers: Literal["probabilities", "gradients", "classes"] = Field(
        "probabilities", description="the switch s: data-sensitive, in two forms, or label-sensitive"
    )
    sub_teachers: int = Field(100, ge=2, le=1024, description="K, of each silo, on disjoint parts of its records")
    rounds: int = Field(16, ge=1, le=10_000, description="T")
    inputs: int = Field(1024, ge=2, le=1 << 16, description="b, about which silos are asked in each round")
    kept: int | None = Field(
        None, ge=2, description="k; default: all coordinates of a gradient, 3 classes to respond among"
    )
    other_weight: float = Field(1.0, ge=0, le=1e3, description="lambda of gradients, of all classes but the first")
    network: Literal["linear", "mlp", "convnet"] = Field("linear", description="of teachers")
    student: Literal["linear", "mlp", "convnet"] = Field("linear", description="the network of its members")
    members: int = Field(10, ge=1, le=100, description="of the student at most; best more than there are silos")
    backbone: str | None = Field(None, description="a public network whose features they see; default: a shipped one")
    teacher_steps: int = Field(600, ge=1, le=100_000, description="at most; training stops when it no longer helps")
    private_steps: int = Field(150, ge=1, le=100_000, description="of DP-SGD")
    sampling_probability: float = Field(0.1, gt=0, le=1, description="q, of DP-SGD")
    clip: float = Field(8.0, gt=0, description="of a record's gradient in DP-SGD")
    generated: float = Field(
        0.25, ge=0, le=1, description="share of inputs that the generator makes; others are public"
    )
    student_steps: int = Field(300, ge=1, le=100_000, description="in each round")
    final_steps: int = Field(3000, ge=1, le=1_000_000, description="of the student, once all answers are there")
    generator_steps: int = Field(10, ge=0, le=10_000, description="in each round")
    records_per_class: int = Field(50, ge=1, le=10_000, description="of the synthetic set")

    @model_validator(mode="after")
    def _responses_are_plain(self) -> Self:
        if self.answers == "classes" and self.teachers != "plain":
            raise ValueError('answers = "classes" are those of teachers = "plain": set both')
        return self

    def noise_for(self, task: Task) -> float:
        return calibrate(self.events, task.epsilon, task.delta)

    @property
    def parts(self) -> int:
        return self.sub_teachers if self.teachers == "sub-teachers" else 1

    def events(self, noise_multiplier: float) -> list[Event]:
        if self.teachers == "dp-sgd":
            return [SampledGaussian(noise_multiplier, self.sampling_probability, self.private_steps)]
        if self.teachers == "label-dp":
            return [LabelResponse(noise_multiplier)]
        return [SampledGaussian(noise_multiplier)] * self.rounds

    def outlook(self, query: TeacherAnswers, crowd: Crowd) -> Outlook:
        noise = _NOISES.get(query.teachers, _noise_of_answers)(query, crowd)
        return Outlook(
            [query] * self.rounds,
            noise,
            _BEARABLE[query.teachers],
            records_help=query.trained_privately,
            silo_views=crowd.records + self.rounds * self.inputs,
            server_views=self.rounds * self.inputs * (1 + round(self.generated * self.generator_steps)),
        )


def _noise_of_answers(query: TeacherAnswers, crowd: Crowd) -> float:
    """Its length in one input's mean answer, which is no longer than 1."""
    if query.answers == "classes":
        response = query.response()
        assert response is not None
        kept, others = response.kept, (1 - response.kept) / (response.choices - 1)
        return math.sqrt((1 - kept**2) / crowd.silos) / max(kept - others, 1e-9)
    return query.plan().noise_std * math.sqrt(query.schema.classes / crowd.silos) / query.parts


def _noise_of_training(query: TeacherAnswers, crowd: Crowd) -> float:
    """Its length in the mean gradient of all steps and silos, which is no longer than the clip."""
    training = query.training()
    assert isinstance(training, PrivateTraining)
    weights, steps = training.layout().size, training.steps * crowd.silos
    drawn = training.sampling_probability * crowd.records
    return training.noise_multiplier * math.sqrt(weights / steps) / drawn


def _noise_of_labels(query: TeacherAnswers, crowd: Crowd) -> float:
    """Its length in what the responses of a class's records tell about the class."""
    training, classes = query.training(), query.schema.classes
    assert isinstance(training, LabelTraining)
    kept = training.kept_probability(classes)
    others = (1 - kept) / (classes - 1)
    return math.sqrt(classes / (crowd.silos * crowd.records)) / max(kept - others, 1e-9)


_NOISES = {"dp-sgd": _noise_of_training, "label-dp": _noise_of_labels}
