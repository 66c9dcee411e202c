"""A server folder with a history: runs, releases, reports. For everything that looks at one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
from PIL import Image
from support.published import Ledger, Server, product, question, run_config

from silosynth.common.accounting import epsilon
from silosynth.common.events import Event
from silosynth.common.schema import Schema
from silosynth.deploy.server_folder import write_toml
from silosynth.server.config import DashboardSettings, RunConfig
from silosynth.server.evaluation import Evaluation

SILOS = ("charite", "mayo", "st-mary")
SCHEMA = Schema((8, 8, 1), 3)
CLASSES = ("healthy", "benign", "malignant")
BEGUN, STEP = 1_790_000_000.0, 3600.0
TOTAL, DELTA = 20.0, 1e-5
NOISE = {"prototypes": 6.0, "ldpdc": 3.0, "sps": 2.0}


class ShownServer:
    """Every run asks each silo one question, works for a while and ends with a release."""

    def __init__(self, folder: Path, dashboard_port: int = 0) -> None:
        self.server = Server(folder)
        self.folder = folder
        self.server.silos = list(SILOS)
        self._ledgers = {silo: Ledger(silo) for silo in SILOS}
        self._events: list[Event] = []  # the same for all silos
        self.runs = 0
        config = self.server.config().model_copy(update={"dashboard": DashboardSettings(port=dashboard_port)})
        write_toml(folder / "server.toml", config)

    def run(self, recipe: str, accuracy: float, working: int = 12) -> str:
        """A finished run; returns the release's name."""
        number, config = self._begin(recipe)
        before = self._spent()
        query = question(SCHEMA, noise_multiplier=NOISE[recipe] + 0.01 * number)
        made = product(SCHEMA, per_class=8, seed=number)
        _, entry = self.server.publish(made, config, tuple(self._ledgers.values()), (query,), _evaluation(accuracy))
        self._events.append(query.event())
        spent = self._spent()
        ended = _ended(str(entry.release), accuracy)
        self.write(number, [*_asked(config, before), *_answered(spent), *_worked(working), *ended])
        return str(entry.release)

    def failed(self) -> None:
        number, config = self._begin("ldpdc")
        words = "mayo: requested epsilon 4, remaining 1.2; epsilon 1.1 would fit"
        told = {"silo": "mayo", "error": "BudgetExhausted", "message": words}
        self.write(number, [*_asked(config, self._spent()), ("without", told), ("failed", {**told, "exit_code": 11})])

    def unfinished(self) -> int:
        """A run under way: one silo has answered, one waits for its people, one computes."""
        number, config = self._begin("sps")
        spent = self._spent()
        news = [
            *_asked(config, spent),
            _released("charite", spent + 2.0),
            ("waiting_for_consent", {"silo": "mayo", "digest": "ab" * 32}),
            ("progress", {"silo": "st-mary", "phase": "computing", "fraction": 0.4}),
            *_worked(6),
        ]
        self.write(number, news)
        noise = np.random.default_rng(number).integers(0, 255, (60, 90), dtype=np.uint8)
        Image.fromarray(noise).resize((360, 240), Image.Resampling.NEAREST).save(self._run(number) / "forming.png")
        return number

    def forget(self, silo: str) -> None:
        """Its ledger is begun anew with the same key: what it released is forgotten."""
        self._ledgers[silo] = Ledger(silo, self._ledgers[silo].key)

    def write(self, number: int, news: list[tuple[str, dict[str, Any]]]) -> None:
        """Add to a run's journal."""
        lines = [
            json.dumps({"time": BEGUN + STEP * number + 2.5 * place, "kind": kind, **facts})
            for place, (kind, facts) in enumerate(news)
        ]
        with (self._run(number) / "journal.jsonl").open("a") as file:
            file.write("".join(f"{line}\n" for line in lines))

    def evidence(self, name: str, document: dict[str, Any]) -> None:
        place = self.folder / "evidence" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps(document))

    def _spent(self) -> float:
        return epsilon(self._events, DELTA) if self._events else 0.0

    def _run(self, number: int) -> Path:
        return self.folder / "runs" / str(number)

    def _begin(self, recipe: str) -> tuple[int, RunConfig]:
        self.runs += 1
        records = {"shape": SCHEMA.shape, "classes": SCHEMA.classes, "class_names": CLASSES}
        config = run_config(SCHEMA, name="biopsies", recipe=recipe, records=records, federation={"silos": SILOS})
        self._run(self.runs).mkdir(parents=True)
        (self._run(self.runs) / "run.toml").write_text(tomli_w.dumps(config.model_dump(mode="json", exclude_none=True)))
        return self.runs, config


def _asked(config: RunConfig, spent: float) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "gathering", {"silos": list(SILOS)}
    for silo in SILOS:
        budget = {"epsilon_spent": spent, "epsilon_total": TOTAL, "delta": DELTA}
        yield "attending", {"silo": silo, "dataset": "biopsies", "version": "0.1.0", **budget}
    yield "planning", {"recipe": config.recipe, "epsilon": 4.0, "delta": DELTA, "config": config.digest()}
    yield "asking", {"mechanism": "mixtures", "digest": "cd" * 32, "values": 1920}


def _answered(spent: float) -> Iterator[tuple[str, dict[str, Any]]]:
    for silo in SILOS:
        yield "progress", {"silo": silo, "phase": "computing", "fraction": 0.5}
        yield _released(silo, spent)
    yield "summed", {"silos": len(SILOS), "digest": "cd" * 32}


def _released(silo: str, spent: float) -> tuple[str, dict[str, Any]]:
    return "released", {
        "silo": silo, "bytes": 1_066_000, "replayed": False, "epsilon_spent": spent, "epsilon_total": TOTAL
    }  # fmt: skip


def _worked(steps: int) -> Iterator[tuple[str, dict[str, Any]]]:
    for step in range(steps):
        loss = 2.0 / (1 + step)
        yield "working", {"what": "synthesizing", "share": (step + 1) / (steps + 1), "loss": loss}


def _ended(release: str, accuracy: float) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "synthesized", {"records": 24}
    yield "evaluating", {"model": "convnet"}
    yield "evaluated", {"accuracy": accuracy, "floor": 0.4, "ceiling": 0.97}
    yield "released_dataset", {"path": "release", "name": release, "sha256": "0" * 64}
    yield "finished", {}


def _evaluation(accuracy: float) -> Evaluation:
    interval = {"low": accuracy - 0.02, "high": accuracy + 0.02, "method": "t over seeds"}
    by_class = (accuracy + 0.03, accuracy, accuracy - 0.05)
    score = {
        "accuracy": accuracy, "accuracy_spread": 0.01, "accuracy_by_seed": [accuracy] * 3,
        "accuracy_interval": interval, "accuracy_ensemble": accuracy + 0.01, "steps": 400,
    }  # fmt: skip
    return Evaluation.model_validate(
        {
            **score, "model": "convnet", "seeds": [0, 1, 2], "accuracy_by_class": by_class, "worst_class": 2,
            "worst_class_accuracy": accuracy - 0.05, "own_classifier_accuracy": accuracy - 0.03, "floor": 0.4,
            "ceiling": 0.97, "synthetic_records": 24, "test_records": 360, "cpu_seconds": 5.3,
            "by_architecture": {"convnet": score, "mlp": {**score, "accuracy": accuracy - 0.04}},
            "baselines": {"prototypes": {"epsilon": 4.0, "accuracy": accuracy - 0.1, "cpu_seconds": 1.0}},
            "likeness": {
                "space": "procedural-grey", "reference_records": 360, "distance": 12.3, "distance_of_reference": 1.1,
                "density": 0.6, "coverage": 0.71, "variety": 0.8,
            },
            "calibration": {
                "expected_error": 0.06,
                "bins": [
                    {"low": x / 5, "high": x / 5 + 0.2, "share": 0.2, "confidence": x / 5 + 0.1, "accuracy": x / 5}
                    for x in range(5)
                ],
            },
        }
    )  # fmt: skip


def attack_report() -> dict[str, Any]:
    """As server/attacks/report.py has it."""
    roc = [{"false_positive_rate": x / 1000, "true_positive_rate": min(1.0, 1.2 * x / 1000)} for x in range(0, 1001, 5)]
    rate = {"value": 0.012, "low": 0.004, "high": 0.03, "allowed": 0.55}
    return {
        "version": 1, "attacked": "ldpdc at epsilon 4", "recipe": "ldpdc", "parameters": {},
        "relation": "one record of one silo added or removed", "epsilon_claimed": 4.0, "delta": DELTA, "data": "digits",
        "silos": 3, "partition": "iid", "records": 900, "runs": 64, "seeds": [0],
        "membership": [
            {
                "attack": "lira", "method": "Likelihood ratio against shadow runs.", "members": 2000,
                "outsiders": 2000, "area": 0.53, "area_interval": [0.51, 0.55], "tpr_at_0_1_percent": rate,
                "tpr_at_1_percent": {**rate, "value": 0.02}, "roc": roc, "flagged": False,
            }
        ],
        "audits": [
            {
                "mechanism": "mixtures", "method": "one run", "runs": 1, "canaries": 1000,
                "guesses": 200, "correct": 131, "confidence": 0.95,
                "delta": DELTA, "epsilon_claimed": 4.0, "epsilon_lower": 0.31, "flagged": False,
                "power": {"noise_divided_by": 3.0, "share": 0.95, "audits": 20},
            }
        ],
        "cpu_seconds": 812.0, "code": {"silosynth": "0.1.0", "source_sha256": "0" * 64}, "commit": "ab" * 20,
        "machine": {"processor": "any", "cores": 2, "python": "3.11", "torch": "2.13"},
    }  # fmt: skip
