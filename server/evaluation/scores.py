"""What a synthetic dataset is worth: models trained on it, tested on public records."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np

from silosynth.common.datasets.records import Records
from silosynth.common.devices import pick_device
from silosynth.server.config import EvaluationSettings
from silosynth.server.evaluation.calibration import calibration
from silosynth.server.evaluation.likeness import likeness
from silosynth.server.evaluation.report import Evaluation
from silosynth.server.evaluation.trials import Bench, Trial, ensemble_accuracy
from silosynth.server.recipes.base import Product


def evaluate(
    product: Product, test: Records, settings: EvaluationSettings, report: Callable[[float], None] = lambda share: None
) -> Evaluation:
    """Judges the synthetic set as it is published, rounded to 8 bits where it consists of images.

    `report` is told the share of the models that are trained.
    """
    begun = time.process_time()
    seeds = range(settings.seeds)
    published = product.records(test.schema)
    bench = Bench(published, product.soft_labels, test, settings)
    models = bench.models
    trials = {
        name: bench.trial(name, seeds, partial(_report_part, report, number, len(models)))
        for number, name in enumerate(models)
    }
    scores = {name: trial.score(test.labels) for name, trial in trials.items()}
    model = models[0]
    headline = scores[model]
    by_class = _by_class(trials[model], test)
    worst = min(by_class, key=lambda label: by_class[label])
    votes = [trial.votes for trial in trials.values()]
    return Evaluation(
        model=model,
        protocol=settings.protocol,
        steps=headline.steps,
        seeds=tuple(seeds),
        accuracy=headline.accuracy,
        accuracy_spread=headline.accuracy_spread,
        accuracy_interval=headline.accuracy_interval,
        accuracy_by_seed=headline.accuracy_by_seed,
        accuracy_ensemble=headline.accuracy_ensemble,
        accuracy_by_class=tuple(by_class.get(label) for label in range(test.schema.classes)),
        worst_class=worst,
        worst_class_accuracy=by_class[worst],
        by_architecture=scores if settings.architectures else {},
        accuracy_ensemble_of_architectures=ensemble_accuracy(votes, test.labels) if settings.architectures else None,
        calibration=calibration(trials[model].confidence, trials[model].correct),
        likeness=likeness(published, test, settings.backbone, pick_device(settings.device)),
        own_classifier_accuracy=_own_accuracy(product, test),
        floor=float(np.bincount(test.labels).max() / len(test)),
        ceiling=settings.ceiling,
        synthetic_records=len(published),
        test_records=len(test),
        cpu_seconds=round(time.process_time() - begun, 2),
    )


def ceiling(train: Records, test: Records, settings: EvaluationSettings, seed: int = 0) -> float:
    """Accuracy of the same model trained on the pooled real records. Only a simulation can know it."""
    bench = Bench(train, None, test, settings)
    return float(bench.trial(bench.models[0], [seed]).by_seed[0])


def _report_part(report: Callable[[float], None], number: int, parts: int, share: float) -> None:
    report((number + share) / parts)


def _by_class(trial: Trial, test: Records) -> dict[int, float]:
    """Of the classes the test set has."""
    return {int(label): float(trial.correct[:, test.labels == label].mean()) for label in np.unique(test.labels)}


def _own_accuracy(product: Product, test: Records) -> float | None:
    if product.classifier is None:
        return None
    correct = [product.classifier(features) == labels for features, labels in test.batches()]
    return float(np.concatenate(correct).mean())
