"""The documents of a release: the privacy card, the dataset card and Croissant say what the receipts prove."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from support.published import GREY, SENTENCE, Ledger, Server, product, question, run_config

from silosynth.common.errors import ConfigError, VerificationFailed
from silosynth.common.publication.verification import verify_release
from silosynth.common.schema import Schema
from silosynth.server.config import EvaluationSettings
from silosynth.server.evaluation import evaluate
from silosynth.server.releases.registry import RegistryRecord

TABLE = Schema((4,), 3)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Server:
    return Server(tmp_path_factory.mktemp("server"))


@pytest.fixture(scope="module")
def path(server: Server) -> Path:
    """A second version, with two silos of different cost and an evaluation."""
    server.publish(config=run_config(name="ward"))
    words = {"curators": ["Consortium"], "region": "Germany", "sector": "Healthcare", "license": "cc-by-4.0"}
    made = product(models={"means": {"means": np.zeros((3, 64))}})
    settings = EvaluationSettings(steps=2, seeds=1, device="cpu", ceiling=0.9)
    score = evaluate(made, made.records(GREY), settings)
    ledgers, queries = (Ledger("a"), Ledger("b", sequence=4)), (question(), question(noise_multiplier=1.0))
    config = run_config(name="ward", release=words)
    return server.publish(made, config, ledgers, queries, score)[0]


@pytest.fixture(scope="module")
def card(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((path / "privacy-card.yaml").read_text())
    return document


def test_the_card_is_a_tier_3_record_of_the_registry(path: Path) -> None:
    record = RegistryRecord.from_yaml((path / "privacy-card.yaml").read_text())
    assert record.tier == 3
    assert record.deployment.basic.name == "ward/2"
    assert record.deployment.basic.data_product_sector == "Healthcare"


def test_the_cards_epsilon_is_that_of_the_receipts(path: Path, card: dict[str, Any]) -> None:
    privacy, loss = verify_release(path).privacy, card["deployment"]["privacy_loss"]
    assert loss["privacy_parameters"] == {"epsilon": privacy.epsilon_worst, "delta": privacy.delta}
    assert "- a: epsilon" in loss["privacy_parameters_details"]
    assert "- b: epsilon" in loss["privacy_parameters_details"]


def test_the_card_tells_what_only_the_run_knows(card: dict[str, Any]) -> None:
    deployment = card["deployment"]
    assert SENTENCE in deployment["accounting"]["post_processing"]
    assert "b 4" in deployment["implementation"]["preprocessing_and_hyperparameter_tuning"]
    assert "mixtures: SampledGaussian" in deployment["implementation"]["mechanisms"]
    assert "ceiling" in deployment["dp_variant"]["unprotected_quantities"]
    assert deployment["deployment_model"]["release_type"] == "Many releases"


def test_a_release_without_noise_says_so(server: Server) -> None:
    path, _ = server.publish(queries=(question(noise_multiplier=0.0),))
    record = RegistryRecord.from_yaml((path / "privacy-card.yaml").read_text())
    assert record.deployment.privacy_loss.privacy_parameters.epsilon == float("inf")
    assert "infinite (no noise)" in (path / "README.md").read_text()


@pytest.mark.parametrize(
    ("where", "value", "complaint"),
    [
        (("surprise",), "x", "surprise: unknown key"),
        (("status",), "Finished", "status"),
        (("tier",), 0, "tier"),
        (("url_slug",), "Not A Slug", "url_slug"),
        (("deployment", "basic", "publication_date"), "1/1/2026", "publication_date"),
        (("deployment", "basic", "publication_date"), "2026-13-01", "publication_date"),
        (("deployment", "basic", "data_curators"), [], "data_curators"),
        (("deployment", "basic", "data_product_type"), "Numbers", "data_product_type"),
        (("deployment", "dp_variant", "variant_name"), "My DP", "variant_name"),
        (("deployment", "privacy_loss", "privacy_parameters", "epsilon"), "low", "epsilon"),
        (("deployment", "deployment_model", "actors"), "", "actors"),
        (("deployment", "implementation", "mechanisms"), None, "mechanisms"),
    ],
)
def test_what_the_registry_would_not_take_is_named(
    path: Path, where: tuple[str, ...], value: object, complaint: str
) -> None:
    document = yaml.safe_load((path / "privacy-card.yaml").read_text())
    section = document
    for key in where[:-1]:
        section = section[key]
    section[where[-1]] = value
    with pytest.raises(ConfigError, match=complaint):
        RegistryRecord.from_yaml(yaml.safe_dump(document))


def test_a_card_that_is_no_yaml_is_refused() -> None:
    with pytest.raises(VerificationFailed, match="not YAML"):
        RegistryRecord.from_yaml("a: [")


def test_the_dataset_card_shows_picture_accuracy_and_cost(path: Path) -> None:
    text = (path / "README.md").read_text()
    front, body = text.removeprefix("---\n").split("---\n", 1)
    assert yaml.safe_load(front)["license"] == "cc-by-4.0"
    assert "](contact-sheet.png)" in body
    rows = [line for line in body.splitlines() if line.startswith("| ward/")]
    assert [row.split(" | ")[0] for row in rows] == ["| ward/1", "| ward/2"]
    assert rows[1].rstrip(" |").endswith("%")
    assert SENTENCE in body
    assert "models/means.safetensors" in body


CROISSANT = """
import sys, mlcroissant
dataset = mlcroissant.Dataset(jsonld=sys.argv[1])
assert not dataset.metadata.issues.errors, dataset.metadata.issues.report()
for record_set in dataset.metadata.record_sets:
    records = list(dataset.records(record_set.id))
    print(len(records), sorted(int(record["train/label"]) for record in records))
"""


@pytest.mark.parametrize("schema", [GREY, TABLE])
def test_croissant_is_valid_and_loads(server: Server, schema: Schema) -> None:
    """In a process of its own: its libraries warn of their own future."""
    path, _ = server.publish(product(schema), run_config(schema))
    command = [sys.executable, "-c", CROISSANT, str(path / "croissant.json")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "not standard" not in done.stderr
    assert done.stdout == f"12 {sorted([0, 1, 2] * 4)}\n"


def test_croissants_digests_are_the_files(path: Path) -> None:
    document, files = json.loads((path / "croissant.json").read_text()), verify_release(path).files
    described = {part["@id"]: part["sha256"] for part in document["distribution"] if "sha256" in part}
    assert described == {name: files[name].sha256 for name in ("data/train.npz", "models/means.safetensors")}
