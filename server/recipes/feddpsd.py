"""FedDPSD: teachers in the silos answer, a student and a generator on the server learn (DPSD, Algorithm 2), corrected.

For each of T rounds: b inputs, public images and what the generator makes of its latents, go to all silos with the
student's probabilities; every silo answers through its own teachers, with noise of its own; the mean answer is what the
student should think, or moves what it thinks there; the student learns from all answers so far; generator and latents
learn from the student (L_s + one-hot + information entropy + activation). With one silo it is DPSD.

What differs from the paper, and why: the guarantee (see the mechanism `teacher_answers`); answers are remembered, since
going over them again is free; most inputs are public images, since a generator that knows the teachers only through the
student finds few inputs that tell them apart; in the end the student may be a committee, of the form of the teachers'
mean; answers are the teachers' probabilities, which differ by sqrt(2) at most where gradients of length 1 differ by 2.
`gradients` are there, cut to length 1 where the paper stretches all to it: a teacher who is unsure, as those are who
miss a class, then says little instead of naming something with full force.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from silosynth.common.auxiliary import as_inputs
from silosynth.common.config import Section
from silosynth.common.datasets.records import Features, Labels, to_unit_range
from silosynth.common.events import Event
from silosynth.common.procedural.dice import Dice
from silosynth.common.schema import Schema
from silosynth.common.teaching.distillation import likeliest
from silosynth.server.recipes.base import Classifier, Product, Steps, Summed, Task
from silosynth.server.recipes.outlook import Crowd, Outlook
from silosynth.server.recipes.teacher_parameters import TeacherParameters
from silosynth.server.recipes.teacher_questions import Questions, in_rows
from silosynth.server.synthesis.committee import Committee
from silosynth.server.synthesis.generator import LATENT, Generator
from silosynth.server.synthesis.generator_networks import tensors_of
from silosynth.server.synthesis.public_inputs import public_inputs
from silosynth.server.synthesis.pupil import Pupil, on_simplex

_DECAY_IN_NOISE = 1.0  # of the student's weights: without it, it learns the noise
_SAMPLED = 20  # records are the ones the student is surest of, among so many times as many as are asked for


class FedDpsd:
    name = "feddpsd"
    parameters: type[Section] = TeacherParameters
    levers: tuple[dict[str, Any], ...] = (
        {"rounds": 2},
        {"teachers": "sub-teachers", "sub_teachers": 100},
        {"teachers": "dp-sgd"},
    )
    post_processing = (
        "A student learns from the silos' noisy answers about public and generated inputs, and a generator from the "
        "student; the synthetic records are the generator's, labelled by the student: neither has seen a record."
    )

    def events(self, task: Task, parameters: TeacherParameters, noise_multiplier: float) -> list[Event]:
        return parameters.events(noise_multiplier)

    def outlook(self, task: Task, parameters: TeacherParameters, crowd: Crowd) -> Outlook:
        return parameters.outlook(Questions.of(task, parameters).example(), crowd)

    def steps(self, task: Task, parameters: TeacherParameters) -> Steps:
        questions, schema = Questions.of(task, parameters), task.schema
        view = questions.view(parameters.student)
        student = Pupil(view, _committee(questions, 1), task.seed)
        generator = Generator(schema, max(2, round(parameters.generated * parameters.inputs)), task.seed)
        for number in range(parameters.rounds):
            made = generator.sample(generator.latents)
            public = public_inputs(schema, parameters.inputs - len(made), task.seed, number)
            inputs = _as_travelling(torch.cat([made, public]), schema)
            thought = student.probabilities(inputs)
            summed = yield questions.about(inputs, thought)
            targets = _targets(summed, thought, parameters)
            student.remember(inputs, targets)
            loss = student.study(parameters.student_steps)
            generator.learn(student, targets[: len(made)], parameters.generator_steps)
            task.workplace.report(
                (number + 1) / parameters.rounds, loss, lambda: _synthetic(task, generator, student, 2)[:2], "learning"
            )
        student.graduate(_students(questions), parameters.final_steps)
        features, labels, soft_labels = _synthetic(task, generator, student, parameters.records_per_class)
        return Product(
            features,
            labels,
            soft_labels,
            models={"student": tensors_of(student.classifier), "generator": tensors_of(generator.network)},
            classifier=_classifier(student, schema),
        )


def _committee(questions: Questions, members: int) -> Committee:
    network = questions.parameters.student
    return Committee(network, members, questions.schema, questions.view(network).features(), questions.seed)


def _students(questions: Questions) -> list[tuple[Committee, float]]:
    """For exact answers of teachers unlike each other, for exact ones of teachers alike, and for noisy answers.

    A member for every so many answers as it has weights of a class: fewer would not tell members apart.
    """
    chosen, seen = questions.parameters, questions.view(questions.parameters.student).features()
    enough = chosen.rounds * chosen.inputs // (seen or questions.schema.dimension)
    kinds = ((min(chosen.members, enough), 0.0), (1, 0.0), (1, _DECAY_IN_NOISE))
    return [(_committee(questions, max(members, 1)), decay) for members, decay in kinds]


def _as_travelling(inputs: Tensor, schema: Schema) -> Tensor:
    """What silos will see of them: images in 8 bits."""
    return as_inputs(to_unit_range(in_rows(inputs, schema)), schema)


def _targets(summed: Summed, thought: Tensor, parameters: TeacherParameters) -> Tensor:
    """Probabilities to learn; by gradients, the student's own and a step (Eq. (3), which Algorithm 2 forgets)."""
    answers = summed.blocks["answers"] / summed.silos
    if parameters.answers == "classes":
        votes = np.zeros(thought.shape)
        np.put_along_axis(votes, likeliest(thought.numpy(), answers.shape[1]), answers, axis=1)
        return torch.from_numpy(votes).float()
    mean = torch.from_numpy(answers / parameters.parts).float()
    return on_simplex(mean if parameters.answers == "probabilities" else thought - mean)


def _synthetic(task: Task, generator: Generator, student: Pupil, each: int) -> tuple[Features, Labels, Features]:
    """Of each class the generated records that the student is surest of, with all it thinks of them."""
    schema, count = task.schema, task.schema.classes * each
    made = _as_travelling(generator.sample(Dice(task.seed, 2).normal(_SAMPLED * count, LATENT)), schema)
    thought = student.probabilities(made)
    labels = torch.arange(schema.classes).repeat(each)
    chosen = thought.topk(each, dim=0).indices.reshape(-1)
    records = to_unit_range(in_rows(made[chosen], schema)).reshape(-1, *schema.shape)
    return records, labels.numpy(), thought[chosen].numpy()


def _classifier(student: Pupil, schema: Schema) -> Classifier:
    return lambda features: student.probabilities(as_inputs(features, schema)).argmax(1).numpy()
