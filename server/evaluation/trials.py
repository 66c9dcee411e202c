"""Models of one architecture, one for each seed, trained on a set and tried on public records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from torch import nn

from silosynth.common.backbones import backbone_for
from silosynth.common.datasets.records import Labels, Records
from silosynth.common.devices import pick_device
from silosynth.common.errors import ConfigError, DataError
from silosynth.common.schema import Schema
from silosynth.server.config import EvaluationSettings
from silosynth.server.evaluation.examples import Examples, SoftLabels
from silosynth.server.evaluation.finetuning import TunedBackbone
from silosynth.server.evaluation.intervals import interval
from silosynth.server.evaluation.models import BACKBONE, build_model, models_for
from silosynth.server.evaluation.protocols import PROTOCOLS
from silosynth.server.evaluation.report import ArchitectureScore
from silosynth.server.evaluation.training import Probabilities, predict, train


@dataclass(frozen=True)
class Trial:
    """What the seeds' models said about the test records."""

    correct: npt.NDArray[np.bool_]  # (seeds, test records)
    confidence: Probabilities  # (seeds, test records), of the answers
    votes: Probabilities  # (test records, classes), summed over seeds
    steps: int

    @property
    def by_seed(self) -> npt.NDArray[np.float64]:
        shares: npt.NDArray[np.float64] = self.correct.mean(axis=1)
        return shares

    def score(self, labels: Labels) -> ArchitectureScore:
        return ArchitectureScore(
            accuracy=float(self.by_seed.mean()),
            accuracy_spread=float(self.by_seed.std()),
            accuracy_by_seed=tuple(self.by_seed.tolist()),
            accuracy_interval=interval(self.by_seed, len(labels)),
            accuracy_ensemble=ensemble_accuracy([self.votes], labels),
            steps=self.steps,
        )


def ensemble_accuracy(votes: Iterable[Probabilities], labels: Labels) -> float:
    """Of the class with the largest mean probability, each model having one vote."""
    total = np.sum(list(votes), axis=0)
    return float((total.argmax(axis=1) == labels).mean())


class Bench:
    """One training set, one test set, one protocol, and the models that settings name."""

    def __init__(
        self, train_on: Records, soft_labels: SoftLabels | None, test: Records, settings: EvaluationSettings
    ) -> None:
        if not (len(train_on) and len(test)):
            raise DataError(f"there are no {'test' if len(train_on) else 'synthetic'} records to evaluate with")
        # Whatever does not fit is found here: found later, it would cost all the training before it.
        self.models = models_for(settings, test.schema)
        self._backbone = backbone_for(test.schema, settings.backbone) if BACKBONE in self.models else None
        self._augmentation = _augmentation(settings, test.schema)
        self._device = pick_device(settings.device)
        self._examples = Examples(train_on, soft_labels, self._device)
        self._unseen = Examples(test, None, self._device)
        self._labels, self._schema = test.labels, test.schema
        self._protocol = PROTOCOLS[settings.protocol]
        self._steps = settings.steps or self._protocol.steps(len(train_on))

    def trial(self, model: str, seeds: Sequence[int], report: Callable[[float], None] = lambda share: None) -> Trial:
        answers = []
        for seed in seeds:
            answers.append(self._train_and_predict(model, seed))
            report(len(answers) / len(seeds))
        correct = np.stack([answer.argmax(axis=1) == self._labels for answer in answers])
        confidence = np.stack([answer.max(axis=1) for answer in answers])
        return Trial(correct, confidence, np.sum(answers, axis=0), self._steps)

    def _train_and_predict(self, name: str, seed: int) -> Probabilities:
        model = self._built(name, seed)
        train(model, self._examples, self._protocol, steps=self._steps, augmentation=self._augmentation, seed=seed)
        return predict(model, self._unseen)

    def _built(self, name: str, seed: int) -> nn.Module:
        if self._backbone is not None and name == BACKBONE:
            return TunedBackbone(self._backbone, self._schema, self._device)
        return build_model(name, self._schema, seed, self._device)


def _augmentation(settings: EvaluationSettings, schema: Schema) -> tuple[str, ...]:
    if settings.augmentation and not schema.is_image:
        raise ConfigError("evaluation.augmentation is for images, these records are rows of a table: leave it out")
    if settings.augmentation is not None or not schema.is_image:
        return settings.augmentation or ()
    return PROTOCOLS[settings.protocol].augmentation
