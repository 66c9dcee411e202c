"""A silo judges a pulled release on its own records. The result stays here: it is exact, hence private."""

from __future__ import annotations

from typing import Any

import numpy as np
from rich.table import Table

from silosynth.client.config import load_silo
from silosynth.client.releases.dataset import ReleaseDataset, load_dataset
from silosynth.common.datasets import load_records
from silosynth.common.datasets.records import to_unit_range
from silosynth.common.errors import ConfigError
from silosynth.deploy.kits import Kit
from silosynth.server.config import EvaluationSettings
from silosynth.server.evaluation import evaluate
from silosynth.server.recipes.base import Product


def evaluate_locally(kit: Kit, release: str, seeds: int) -> dict[str, Any]:
    """Verify the release, read the records as the guard does, train on the one and test on the other."""
    dataset = load_dataset(release, kit.releases, None)
    records = load_records(load_silo(kit.silo_toml).data, kit.guard)
    fits = (tuple(dataset.manifest.shape), len(dataset.classes)) == (records.schema.shape, records.schema.classes)
    if not fits:
        raise ConfigError(f"{release} has records of another shape or other classes than this silo's")
    evaluation = evaluate(_product(dataset), records, EvaluationSettings(seeds=seeds))
    return {"release": release, **evaluation.model_dump(mode="json")}


def score_table(document: dict[str, Any]) -> Table:
    table = Table("on this silo's own records (do not publish)", document["release"])
    table.add_row("always the largest class", f"{100 * document['floor']:.1f} %")
    spread = f"{100 * document['accuracy']:.1f} % (spread {100 * document['accuracy_spread']:.1f})"
    table.add_row(f"model ({document['model']}) trained on the release", spread)
    table.add_row(f"its worst class, {document['worst_class']}", f"{100 * document['worst_class_accuracy']:.1f} %")
    return table


def _product(dataset: ReleaseDataset) -> Product:
    soft = None if dataset.soft_labels is None else dataset.soft_labels.numpy()
    labels = dataset.labels.numpy().astype(np.int64)
    return Product(to_unit_range(dataset.features.numpy()), labels, soft)
