"""What a synthetic dataset is worth: models trained on it, tested on public records."""

from __future__ import annotations

import time

import numpy as np
import numpy.typing as npt
import torch

from silosynth.common.config import Section
from silosynth.common.datasets.records import Records
from silosynth.server.config import EvaluationSettings
from silosynth.server.evaluation.training import pick_device, predict, train_model
from silosynth.server.recipes.base import Product

Predictions = npt.NDArray[np.int64]


class Evaluation(Section):
    """evaluation.json. Accuracies are shares of the public test records."""

    model: str
    steps: int
    seeds: tuple[int, ...]
    accuracy: float  # mean over seeds of a fresh model trained on the synthetic data
    accuracy_by_seed: tuple[float, ...]
    accuracy_by_class: tuple[float | None, ...]  # of all seeds together; None where the test set lacks the class
    worst_class_accuracy: float
    own_classifier_accuracy: float | None  # of the recipe's own classifier, where it has one
    floor: float  # always answering the test set's largest class
    ceiling: float | None  # non-private training on pooled data, where a simulation knows it
    test_records: int
    cpu_seconds: float


def evaluate(product: Product, test: Records, settings: EvaluationSettings) -> Evaluation:
    begun = time.process_time()
    predictions = [_train_and_predict(product, test, settings, seed) for seed in range(settings.seeds)]
    correct = np.stack([prediction == test.labels for prediction in predictions])
    by_class = [_mean_or_none(correct[:, test.labels == label]) for label in range(test.schema.classes)]
    return Evaluation(
        model=settings.model,
        steps=settings.steps,
        seeds=tuple(range(settings.seeds)),
        accuracy=float(correct.mean()),
        accuracy_by_seed=tuple(float(share) for share in correct.mean(axis=1)),
        accuracy_by_class=tuple(by_class),
        worst_class_accuracy=min(share for share in by_class if share is not None),
        own_classifier_accuracy=_own_accuracy(product, test),
        floor=float(np.bincount(test.labels).max() / len(test)),
        ceiling=settings.ceiling,
        test_records=len(test),
        cpu_seconds=round(time.process_time() - begun, 2),
    )


def ceiling(train: Records, test: Records, settings: EvaluationSettings) -> float:
    """Accuracy of the same model trained on the pooled real records. Only a simulation can know it."""
    features = np.concatenate([features for features, _ in train.batches()])
    pooled = Product(features, train.labels)
    return float((_train_and_predict(pooled, test, settings, seed=0) == test.labels).mean())


def _train_and_predict(product: Product, test: Records, settings: EvaluationSettings, seed: int) -> Predictions:
    device: torch.device = pick_device(settings.device)
    targets = product.labels if product.soft_labels is None else product.soft_labels
    model = train_model(
        settings.model, test.schema, product.features, targets, steps=settings.steps, seed=seed, device=device
    )
    return predict(model, test, device)


def _own_accuracy(product: Product, test: Records) -> float | None:
    if product.classifier is None:
        return None
    correct = [product.classifier(features) == labels for features, labels in test.batches()]
    return float(np.concatenate(correct).mean())


def _mean_or_none(correct: npt.NDArray[np.bool_]) -> float | None:
    return float(correct.mean()) if correct.size else None
