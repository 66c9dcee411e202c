"""Runs that ask silos for scores on their own records, or for baselines: real guards, couriers, exchange, store."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.fake_federation import Courier, Identities, open_exchange
from support.guards import DELTA, silo_tables
from support.toy_images import TOY, toy_backbone, toy_records

from silosynth.client.config import SiloConfig
from silosynth.client.guard.decisions import Decisions
from silosynth.client.guard.entropy import SystemEntropy
from silosynth.client.guard.guard import Guard
from silosynth.client.guard.identity import load_or_create
from silosynth.client.guard.ledger import Ledger
from silosynth.client.guard.service import GuardServer
from silosynth.client.guard.terms import Terms
from silosynth.client.mechanisms import MECHANISMS
from silosynth.common.accounting import epsilon
from silosynth.common.backbones import save_backbone
from silosynth.common.config import parse
from silosynth.common.datasets import save_npz
from silosynth.common.publication import verify_release
from silosynth.common.queries import Scores
from silosynth.server.conduct import conduct
from silosynth.server.config import RunConfig
from silosynth.server.evaluation.baselines import PRIVATE_DESCENT
from silosynth.server.journal import Journal
from silosynth.server.releases.entries import Entry
from silosynth.server.releases.keys import create_key
from silosynth.server.releases.publisher import Publisher
from silosynth.server.witness import Witness

SEEDS = {"a": 1, "b": 2}
ALLOWED = ["mixtures", "scores", "sufficient_statistics", "gradient_sums"]


@contextlib.contextmanager
def served(folder: Path, backbones: Sequence[str], budget: float) -> Iterator[tuple[Guard, GuardServer]]:
    """A guard whose people have adopted what its silo.toml says now."""
    folder.mkdir(exist_ok=True)
    tables = silo_tables(budget, mechanisms_allowed=ALLOWED, backbones=backbones)
    tables["silo"]["name"] = folder.name
    tables["guard"]["device"] = "cpu"
    config = parse(SiloConfig, tables, "test")
    ledger = Ledger.open(folder / "ledger.db", folder.name, load_or_create(folder / "receipts.key"))
    with contextlib.closing(ledger):
        decisions = Decisions.beside(ledger.path, ledger.identity, ledger.clock)
        decisions.adopt("default", Terms.of(config), "adopted", "tester")
        records = toy_records((80, 80, 80), seed=SEEDS[folder.name])
        guard = Guard(config, records, ledger, MECHANISMS, SystemEntropy())
        server = GuardServer(guard, "127.0.0.1:0")
        try:
            yield guard, server
        finally:
            server.stop()


class Federation:
    def __init__(self, folder: Path) -> None:
        self.folder, self.identities, self.runs = folder, Identities(folder), 0
        self.ledgers: dict[str, float] = {}  # what was spent by the end of the last run
        create_key(folder)
        save_backbone(toy_backbone(), folder / "toy.safetensors")
        save_npz(toy_records(seed=9), folder / "test.npz")
        self.publisher = Publisher(folder, Witness(folder / "witness.db"))

    def config(self, **evaluation: Any) -> RunConfig:
        tables: dict[str, Any] = {
            "name": "toy",
            "recipe": "prototypes",
            "records": {"shape": TOY.shape, "classes": TOY.classes},
            "privacy": {"epsilon": 4.0, "delta": DELTA},
            "federation": {"silos": list(SEEDS), "quorum": 2, "grace_seconds": 15.0},
            "evaluation": {
                "test": {"source": "npz", "path": str(self.folder / "test.npz"), "classes": TOY.classes},
                "model": "linear",
                "steps": 5,
                "seeds": 1,
                "backbone": str(self.folder / "toy.safetensors"),
                "silo_epsilon": 3.0,
            }
            | evaluation,
        }
        return parse(RunConfig, tables, "test")

    def run(self, backbones: dict[str, Sequence[str]], budget: float = 20.0, **evaluation: Any) -> Entry:
        self.runs += 1
        (folder := self.folder / f"run-{self.runs}").mkdir()
        with contextlib.ExitStack() as stack:
            guards = {
                silo: stack.enter_context(served(self.folder / silo, backbones.get(silo, ()), budget)) for silo in SEEDS
            }
            exchange = stack.enter_context(open_exchange(self.identities, list(SEEDS)))
            for silo, (_, server) in guards.items():
                Courier(self.identities.courier(silo, server.address), exchange.address)
            journal = Journal(folder / "journal.jsonl")
            conduct(self.config(**evaluation), folder, self.folder / "work", exchange, self.publisher, journal)
            self.ledgers = {silo: guard.budget().epsilon_spent for silo, (guard, _) in guards.items()}
        return self.publisher.store.entries()[-1]

    def told(self, kind: str) -> list[dict[str, Any]]:
        lines = (self.folder / f"run-{self.runs}" / "journal.jsonl").read_text().splitlines()
        return [entry for entry in map(json.loads, lines) if entry["kind"] == kind]

    def score(self, entry: Entry) -> Any:
        return json.loads(self.publisher.store.text(entry.release, "evaluation.json"))["on_silos"]


@pytest.fixture
def federation(tmp_path: Path) -> Federation:
    return Federation(tmp_path)


def test_a_score_is_asked_for_charged_and_told(federation: Federation) -> None:
    """People can allow a model only when it exists. Asked again, silos repeat their answers: it is the same model."""
    first = federation.run({})
    assert federation.score(first) is None
    assert [entry["error"] for entry in federation.told("not_scored")] == ["PolicyDenied"]
    before = federation.publisher.store.manifest(first.release)

    (model,) = {entry["message"].split("backbone ")[1][:64] for entry in federation.told("without")}
    second = federation.run({"a": [model]})
    score, manifest = federation.score(second), federation.publisher.store.manifest(second.release)
    assert (score["model"], score["silos"], score["epsilon"]) == (model, 1, 3.0)
    assert 0 <= score["accuracy_interval"]["low"] <= score["accuracy"] <= score["accuracy_interval"]["high"] <= 1
    verify_release(federation.folder / "run-2" / "release")

    (query,) = (query for query in manifest.restored_queries() if isinstance(query, Scores))
    charged = {silo: [r.event for r in manifest.restored_receipts() if r.silo == silo] for silo in SEEDS}
    assert query.event() in charged["a"]
    assert query.event() not in charged["b"]
    spent = manifest.privacy.epsilon_by_silo
    assert spent["a"] == pytest.approx(epsilon(charged["a"], DELTA))
    assert spent["a"] > before.privacy.epsilon_by_silo["a"] + 0.5
    assert spent["b"] == before.privacy.epsilon_by_silo["b"]
    assert federation.ledgers["a"] == pytest.approx(spent["a"])
    assert federation.ledgers["b"] == pytest.approx(spent["b"])
    card = " ".join(federation.publisher.store.text(second.release, "privacy-card.yaml").split())
    assert "spent 3 on this alone" in card
    assert "On the silos' own records" in federation.publisher.store.text(second.release, "README.md").replace(
        "\n", " "
    )


def test_a_budget_that_is_too_small_for_scores_costs_no_release(federation: Federation) -> None:
    federation.run({})
    (model,) = {entry["message"].split("backbone ")[1][:64] for entry in federation.told("without")}
    again = federation.run({"a": [model], "b": [model]}, budget=4.0)
    assert federation.score(again) is None
    assert [entry["error"] for entry in federation.told("not_scored")] == ["BudgetExhausted"]


def test_baselines_are_asked_for_in_the_same_run_and_charged(federation: Federation) -> None:
    """Ridge by one more question, DP-FedAvg by one for each of its steps: the same silos, the same exchange."""
    entry = federation.run({}, budget=30.0, baselines=["ridge", "dp-fedavg"], silo_epsilon=None, backbone=None)
    found = json.loads(federation.publisher.store.text(entry.release, "evaluation.json"))["baselines"]
    assert {name: baseline["epsilon"] for name, baseline in found.items()} == {"ridge": 4.0, "dp-fedavg": 4.0}
    assert all(0 <= baseline["accuracy"] <= 1 for baseline in found.values())
    manifest = federation.publisher.store.manifest(entry.release)
    asked = Counter(query.mechanism for query in manifest.restored_queries())
    assert asked == {"mixtures": 1, "sufficient_statistics": 1, "gradient_sums": PRIVATE_DESCENT.steps}
    assert len(manifest.restored_receipts()) == len(SEEDS) * asked.total()
    for silo in SEEDS:
        assert 4.5 < manifest.privacy.epsilon_by_silo[silo] == pytest.approx(federation.ledgers[silo])
    verify_release(federation.folder / "run-1" / "release")


def test_a_budget_that_is_too_small_for_baselines_costs_no_release(federation: Federation) -> None:
    entry = federation.run({}, budget=4.1, baselines=["ridge"], silo_epsilon=None, backbone=None)
    assert json.loads(federation.publisher.store.text(entry.release, "evaluation.json"))["baselines"] == {}
    assert [told["error"] for told in federation.told("not_compared")] == ["BudgetExhausted"]
