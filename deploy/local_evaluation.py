"""A silo judges a pulled release on its own records. The result stays here: it is exact, hence private."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from silosynth.client.config import load_silo
from silosynth.client.releases.dataset import load_dataset
from silosynth.common.datasets import load_records
from silosynth.deploy.evaluations import as_product, check_fit
from silosynth.deploy.kits import Kit
from silosynth.server.config import EvaluationSettings
from silosynth.server.evaluation import evaluate


def evaluate_locally(kit: Kit, release: str, seeds: int) -> dict[str, Any]:
    """Verify the release, read the records as the guard does, train on the one and test on the other."""
    dataset = load_dataset(release, kit.releases, None)
    records = load_records(load_silo(kit.silo_toml).data, kit.guard)
    check_fit(dataset, records, "this silo's")
    evaluation = evaluate(as_product(dataset), records, EvaluationSettings(seeds=seeds))
    return {"release": release, **evaluation.model_dump(mode="json")}


def score_table(document: dict[str, Any]) -> Table:
    table = Table("on this silo's own records (do not publish)", document["release"])
    table.add_row("always the largest class", f"{100 * document['floor']:.1f} %")
    spread = f"{100 * document['accuracy']:.1f} % (spread {100 * document['accuracy_spread']:.1f})"
    table.add_row(f"model ({document['model']}) trained on the release", spread)
    table.add_row(f"its worst class, {document['worst_class']}", f"{100 * document['worst_class_accuracy']:.1f} %")
    return table
