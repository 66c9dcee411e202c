"""Evaluating a finished release on public records, beside the release."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from silosynth.client.releases.dataset import ReleaseDataset, load_dataset
from silosynth.common.config import parse
from silosynth.common.datasets import Records, image_folder, load
from silosynth.common.datasets.records import to_unit_range
from silosynth.common.errors import ConfigError, OneSetOnly
from silosynth.server.config import EvaluationSettings
from silosynth.server.evaluation import Evaluation
from silosynth.server.evaluation import evaluate as judge
from silosynth.server.evaluation.plots import PICTURE, plot_evaluation
from silosynth.server.recipes.base import Product
from silosynth.server.releases.code_version import code_version


@dataclass(frozen=True)
class Order:
    """What to test on, and which models."""

    test: str
    split: str | None
    classes: int | None
    seeds: int
    model: str
    architectures: tuple[str, ...]
    protocol: str

    def settings(self) -> EvaluationSettings:
        said = {
            "seeds": self.seeds,
            "model": self.model,
            "architectures": self.architectures,
            "protocol": self.protocol,
        }
        return parse(EvaluationSettings, said, "evaluate")

    def test_records(self, names: tuple[str, ...]) -> Records:
        """`names` are the release's classes: folders of images must have the same, if those are names at all."""
        said: dict[str, Any] = {} if self.classes is None else {"classes": self.classes}
        if self.classes is None and image_folder.recognises(Path(self.test)) and not all(map(str.isdigit, names)):
            said = {"classes": names}
        if self.split is not None:
            return load(self.test, split=self.split, **said)
        try:
            return load(self.test, split="test", **said)
        except OneSetOnly:
            return load(self.test, **said)


def evaluate_release(folder: Path, order: Order, target: Path, report: Callable[[float], None]) -> Evaluation:
    """Verify the release, train on it, test on public records, write what came out to `target`."""
    settings = order.settings()  # what is wrong with it is told before anything is read
    dataset = load_dataset(folder, None, None)
    test = order.test_records(tuple(dataset.classes))
    check_fit(dataset, test, order.test)
    found = judge(as_product(dataset), test, settings, report)
    evaluation = found.model_copy(
        update={"release": str(dataset.manifest.release), "tested_on": order.test, "code": code_version()}
    )
    target.mkdir(parents=True, exist_ok=True)
    (target / "evaluation.json").write_text(evaluation.model_dump_json(indent=2) + "\n")
    plot_evaluation(evaluation, dataset.classes, target / PICTURE)
    return evaluation


def check_fit(dataset: ReleaseDataset, records: Records, whose: str) -> None:
    released = (tuple(dataset.manifest.shape), len(dataset.classes))
    if released != (records.schema.shape, records.schema.classes):
        raise ConfigError(
            f"{dataset.manifest.release} has records of shape {released[0]} in {released[1]} classes, {whose} of "
            f"{records.schema.shape} in {records.schema.classes}: name test records of the same kind"
        )


def as_product(dataset: ReleaseDataset) -> Product:
    soft = None if dataset.soft_labels is None else dataset.soft_labels.numpy()
    labels = dataset.labels.numpy().astype(np.int64)
    return Product(to_unit_range(dataset.features.numpy()), labels, soft)


def score_table(evaluation: Evaluation) -> Table:
    table = Table("on public test records", evaluation.release or "")
    table.add_row("always the largest class", _percent(evaluation.floor))
    table.add_row(f"[bold]{evaluation.model}[/] trained on the release", _with_interval(evaluation))
    for name, score in evaluation.by_architecture.items():
        if name != evaluation.model:
            table.add_row(f"{name} trained on the release", _percent(score.accuracy))
    table.add_row("all seeds together", _percent(evaluation.accuracy_ensemble))
    table.add_row(f"worst class, {evaluation.worst_class}", _percent(evaluation.worst_class_accuracy))
    if evaluation.calibration is not None:
        table.add_row("expected calibration error", _percent(evaluation.calibration.expected_error))
    if (like := evaluation.likeness) is not None:
        table.add_row(
            f"distance to public records in {like.space}",
            f"{like.distance:.3g} (theirs: {like.distance_of_reference:.3g})",
        )
        table.add_row("coverage of public records", _percent(like.coverage))
        table.add_row("variety within classes, over theirs", _percent(like.variety))
    return table


def _with_interval(evaluation: Evaluation) -> str:
    ends = evaluation.accuracy_interval
    return _percent(evaluation.accuracy) + (f" ({100 * ends.low:.1f} to {100 * ends.high:.1f})" if ends else "")


def _percent(share: float | None) -> str:
    return "not measured" if share is None else f"{100 * share:.1f} %"
