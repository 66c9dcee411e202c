"""No figure that depends on private records is computed without being charged: spies in records and in code."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.guards import DELTA, ignore_progress, open_ledger, silo_tables
from support.spies import SpyRecords
from support.toy_images import TOY, toy_records

from silosynth.client.config import SiloConfig
from silosynth.client.guard.entropy import SystemEntropy
from silosynth.client.guard.guard import Guard
from silosynth.client.guard.ledger import Ledger
from silosynth.client.mechanisms import MECHANISMS
from silosynth.common.config import parse
from silosynth.common.errors import BudgetExhausted, PolicyDenied
from silosynth.common.queries import ClassCounts, encode
from silosynth.common.releases import open_release
from silosynth.common.shipped import shipped_backbones
from silosynth.deploy.inprocess import InProcess
from silosynth.server.collecting import collection
from silosynth.server.config import EvaluationSettings
from silosynth.server.evaluation import SiloScoring, evaluate
from silosynth.server.evaluation.baselines import DP_FEDAVG, measure
from silosynth.server.recipes import RECIPES
from silosynth.server.recipes.base import Ask, Step, Summed, Task, drive

BRIEF = {
    "dosser": {"signals": 5},
    "feddpsd": {"private_steps": 2, "rounds": 1, "inputs": 8},
    "ndpdc": {"signals": 5},
    "sps": {"preset": "quick"},
}
REPOSITORY = Path(__file__).parents[2]
READERS = {
    "client/guard_process.py": "the guard: charges every answer",
    "common/backbones/training_images.py": "public images, to train a backbone with",
    "common/datasets/loading.py": "the loader itself",
    "deploy/doctor_guard.py": "at the silo, for its own people: can the records be read?",
    "deploy/evaluations.py": "public test records",
    "deploy/local_evaluation.py": "at the silo, for its own people: printed, neither kept nor sent",
    "deploy/parts.py": "simulations",
    "deploy/simulation.py": "a simulation with embedded digits",
    "server/conduct.py": "public test records that run.toml names",
}


class Ward:
    """A guard whose records are spied on. Whoever asks is told how many looks and charges that took."""

    def __init__(self, ledger: Ledger, **settings: Any) -> None:
        self.records = SpyRecords.of(toy_records())
        tables = silo_tables(**{"epsilon": 100.0, "max_values": 10**8} | settings)
        config = parse(SiloConfig, {**tables, "data": {**tables["data"], "classes": TOY.classes}}, "test")
        self.guard = Guard(config, self.records, ledger, MECHANISMS, SystemEntropy())
        self.looks_charged = 0

    @property
    def looks(self) -> int:
        return int(self.records.looks)

    def ask(self, step: Step) -> Summed:
        """As a courier would; a look without a new entry in the ledger fails here."""
        asked = Ask.of(step)
        question, before = encode(asked.query), (self.looks, self.guard.budget())
        for artifact in self.guard.lacking(question):
            self.guard.deposit(artifact, [asked.artifacts[artifact]])
        assert self.looks == before[0], "what a guard lacks must not depend on its records"
        values, _ = open_release(asked.query, self.guard.answer(question, ignore_progress).sealed)
        after = self.guard.budget()
        assert (self.looks > before[0]) == (after.releases > before[1].releases)
        assert after.epsilon_spent > before[1].epsilon_spent
        self.looks_charged = self.looks
        collected = collection(asked.query)
        collected.add("toy", values)
        return collected.all()


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    opened = open_ledger(tmp_path)
    yield opened
    opened.close()


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_what_a_recipe_asks_is_charged(name: str, ledger: Ledger) -> None:
    recipe = RECIPES[name]
    step = next(recipe.steps(Task(TOY, 1.0, DELTA), recipe.parameters(**BRIEF.get(name, {}))))
    ward = Ward(ledger, backbones=list(shipped_backbones().values()))
    ward.ask(step)
    assert ward.looks > 0


def test_from_the_first_question_to_the_evaluation_every_look_is_charged(ledger: Ledger) -> None:
    """A whole run, its evaluation on public records, and a score on the silo's own, which is a query."""
    recipe, public = RECIPES["ldpdc"], toy_records(seed=1)
    settings = EvaluationSettings(seeds=1, steps=5)
    scoring = SiloScoring(TOY, settings, 0.5, DELTA)
    ward = Ward(ledger)
    product = drive(recipe.steps(Task(TOY, 1.0, DELTA), recipe.parameters(mixtures=3)), ward.ask)
    assert evaluate(product, public, settings).likeness is not None
    assert ward.looks == ward.looks_charged
    asked = scoring.ask(product)
    assert ward.looks == ward.looks_charged
    with pytest.raises(PolicyDenied):
        ward.ask(asked)
    assert ward.looks == ward.looks_charged


@pytest.mark.parametrize("name", ["ridge", DP_FEDAVG])
def test_baselines_are_charged_step_by_step(name: str, ledger: Ledger) -> None:
    ward, settings = Ward(ledger), EvaluationSettings(seeds=1, steps=5, model="convnet-4")
    found = measure(name, Task(TOY, 1.0, DELTA), toy_records(seed=1), settings, ward.ask)
    assert found.epsilon == 1.0
    assert 0 < ward.looks == ward.looks_charged
    assert ward.guard.budget().epsilon_spent == pytest.approx(1.0, abs=0.05)


def test_a_score_on_own_records_is_charged(ledger: Ledger) -> None:
    recipe = RECIPES["prototypes"]
    scoring = SiloScoring(TOY, EvaluationSettings(), 0.5, DELTA)
    product = drive(recipe.steps(Task(TOY, math.inf, DELTA), recipe.parameters()), _public_answers)
    asked = scoring.ask(product)
    ward = Ward(ledger, backbones=list(asked.query.backbones()))
    score = scoring.read(asked, ward.ask(asked))
    assert score.epsilon == 0.5
    assert ward.guard.budget().epsilon_spent == pytest.approx(0.5, rel=0.01)


def test_what_is_not_answered_is_not_looked_at(ledger: Ledger) -> None:
    ward = Ward(ledger, epsilon=1.0, mechanisms_allowed=["class_counts"])
    ward.ask(ClassCounts(schema=TOY, noise_multiplier=5.0))
    looks = ward.looks
    ward.guard.answer(encode(ClassCounts(schema=TOY, noise_multiplier=5.0)), ignore_progress)  # repeated: stored bytes
    with pytest.raises(BudgetExhausted):
        ward.guard.answer(encode(ClassCounts(schema=TOY, noise_multiplier=0.1)), ignore_progress)
    recipe = RECIPES["prototypes"]
    with pytest.raises(PolicyDenied):
        ward.ask(next(recipe.steps(Task(TOY, 0.1, DELTA), recipe.parameters())))
    ward.guard.describe()
    ward.guard.budget()
    ward.guard.witness(ward.guard.head())
    assert ward.looks == looks


def test_only_these_places_read_records() -> None:
    """Whoever adds one says here why no private figure leaves through it."""
    found = {
        str(path.relative_to(REPOSITORY))
        for room in ("client", "common", "deploy", "server")
        for path in (REPOSITORY / room).rglob("*.py")
        if _reads_records(ast.parse(path.read_text()))
    }
    assert found == set(READERS)


def _reads_records(tree: ast.Module) -> bool:
    """Calls a function that was imported from silosynth.common.datasets and loads."""
    loaders = {
        name.asname or name.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("silosynth.common.datasets")
        for name in node.names
        if name.name in ("load", "load_records")
    }
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)} & {"load_records"}
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    return bool((loaders | own) & called)


def _public_answers(step: Step) -> Summed:
    return InProcess([toy_records(seed=1)]).ask(step)
