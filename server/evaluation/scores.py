"""What a synthetic dataset is worth: models trained on it, tested on public records."""

from __future__ import annotations

import time
from typing import Literal

import numpy as np

from silosynth.common.config import Section
from silosynth.common.datasets.records import Records
from silosynth.common.errors import DataError
from silosynth.server.config import EvaluationSettings
from silosynth.server.evaluation.models import model_for
from silosynth.server.evaluation.training import Labels, SoftLabels, pick_device, predict, train_model
from silosynth.server.recipes.base import Product

_CEILING_SEED = 0


class Evaluation(Section):
    """evaluation.json. Accuracies are shares of the public test records.

    `accuracy` is the headline: of the model declared in run.toml, whichever way the others turn out.
    """

    version: Literal[1] = 1
    model: str
    steps: int
    seeds: tuple[int, ...]
    accuracy: float  # mean over seeds of a fresh model trained on the synthetic data
    accuracy_spread: float  # standard deviation over seeds
    accuracy_by_seed: tuple[float, ...]
    accuracy_by_class: tuple[float | None, ...]  # of all seeds together; None where the test set lacks the class
    worst_class: int
    worst_class_accuracy: float
    own_classifier_accuracy: float | None  # of the recipe's own classifier, where it has one
    floor: float  # always answering the test set's largest class
    ceiling: float | None  # non-private training on pooled data, where a simulation knows it
    synthetic_records: int
    test_records: int
    cpu_seconds: float


def evaluate(product: Product, test: Records, settings: EvaluationSettings) -> Evaluation:
    """Judges the synthetic set as it is published, rounded to 8 bits where it consists of images."""
    if not len(test):
        raise DataError("there are no test records to evaluate on")
    begun = time.process_time()
    seeds = range(settings.seeds)
    published = product.records(test.schema)
    answers = [_train_and_predict(published, product.soft_labels, test, settings, seed) for seed in seeds]
    correct = np.stack([answer == test.labels for answer in answers])
    by_seed = correct.mean(axis=1)
    by_class = {int(label): float(correct[:, test.labels == label].mean()) for label in np.unique(test.labels)}
    worst = min(by_class, key=lambda label: by_class[label])
    return Evaluation(
        model=model_for(settings.model, test.schema),
        steps=settings.steps,
        seeds=tuple(seeds),
        accuracy=float(by_seed.mean()),
        accuracy_spread=float(by_seed.std()),
        accuracy_by_seed=tuple(by_seed.tolist()),
        accuracy_by_class=tuple(by_class.get(label) for label in range(test.schema.classes)),
        worst_class=worst,
        worst_class_accuracy=by_class[worst],
        own_classifier_accuracy=_own_accuracy(product, test),
        floor=float(np.bincount(test.labels).max() / len(test)),
        ceiling=settings.ceiling,
        synthetic_records=len(published),
        test_records=len(test),
        cpu_seconds=round(time.process_time() - begun, 2),
    )


def ceiling(train: Records, test: Records, settings: EvaluationSettings) -> float:
    """Accuracy of the same model trained on the pooled real records. Only a simulation can know it."""
    return float((_train_and_predict(train, None, test, settings, _CEILING_SEED) == test.labels).mean())


def _train_and_predict(
    train: Records, soft_labels: SoftLabels | None, test: Records, settings: EvaluationSettings, seed: int
) -> Labels:
    device = pick_device(settings.device)
    model = train_model(settings.model, train, soft_labels, steps=settings.steps, seed=seed, device=device)
    return predict(model, test, device)


def _own_accuracy(product: Product, test: Records) -> float | None:
    if product.classifier is None:
        return None
    correct = [product.classifier(features) == labels for features, labels in test.batches()]
    return float(np.concatenate(correct).mean())
