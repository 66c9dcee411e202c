"""Synthetic images are moved to what extractors saw of the silos' records, and to what an expert takes for a class."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

from silosynth.common.devices import fast_type, pick_device
from silosynth.common.procedural.dice import Dice
from silosynth.common.signals import Signals
from silosynth.server.recipes.base import Product, Task
from silosynth.server.recipes.feature_signals import Evidence, in_any_order, product, report
from silosynth.server.recipes.guided_parameters import GuidedParameters
from silosynth.server.synthesis.descent import Descent
from silosynth.server.synthesis.enlarging import enlarged_quarters
from silosynth.server.synthesis.expert import Expert
from silosynth.server.synthesis.matching import Matcher

_EXPERT_SEES = 4  # one image of so many in a step: a quarter of the time, and as good a say over several steps


@dataclass(frozen=True)
class Matching:
    """What the silos' records look like to the extractors."""

    signals: Signals
    evidence: Evidence
    clip: float


def distilled(
    task: Task, start: Tensor, matching: Matching | None, expert: Expert | None, parameters: GuidedParameters
) -> Product:
    """The images after all steps, averaged over the last ones; as they start, if there is nothing to learn from."""
    classes, each = task.schema.classes, parameters.records_per_class
    sizes = [each * parameters.parts] * classes
    if matching is None and expert is None:
        return product(_as_used(start, parameters), sizes, task.schema)
    device = pick_device("auto") if matching is None else matching.evidence.device
    descent = Descent(start.to(device), parameters.learning_rate, parameters.steps, parameters.averaging)
    say, dice = _Say(matching, expert, classes, parameters, device), Dice(task.seed, each)
    for step, index in enumerate(islice(in_any_order(parameters.signals, task.seed), parameters.steps), start=1):
        some = dice.uniform(classes, each).argsort(dim=1)[:, : parameters.looked_at]
        rows = (some + each * torch.arange(classes)[:, None]).flatten()
        loss = say.loss(_as_used(descent.records[rows], parameters), index, step)
        descent.step(loss)
        report(task, step / parameters.steps, loss, lambda: _as_used(descent.average, parameters), sizes)
    return product(_as_used(descent.average, parameters), sizes, task.schema)


class _Say:
    """What matching and expert say of as many images of each class as a step looks at, sorted by class."""

    def __init__(
        self,
        matching: Matching | None,
        expert: Expert | None,
        classes: int,
        parameters: GuidedParameters,
        device: torch.device,
    ) -> None:
        self._matching, self._expert = matching, None if expert is None else expert.to(device)
        self._weight = parameters.expert_weight
        sizes = [parameters.looked_at * parameters.parts] * classes
        self._labels = torch.arange(classes, device=device).repeat_interleave(sizes[0])
        if matching is not None:
            self._matcher = Matcher(matching.signals, matching.clip, sizes, fast_type(device))
            self._drawn = matching.evidence.drawn()

    def loss(self, images: Tensor, index: int, step: int) -> Tensor:
        """The expert, whose say is a mean over images, looks at every fourth only, at others in the next step."""
        loss = torch.zeros((), device=images.device)
        if self._matching is not None:
            loss = loss + self._matcher.loss(images, index, self._matching.evidence.sums(index), self._drawn)
        if self._expert is not None:
            every = min(_EXPERT_SEES, len(images))
            turn = slice(step % every, None, every)
            loss = loss + self._weight * self._expert.loss(images[turn], self._labels[turn])
        return loss


def _as_used(images: Tensor, parameters: GuidedParameters) -> Tensor:
    return enlarged_quarters(images) if parameters.packed else images
