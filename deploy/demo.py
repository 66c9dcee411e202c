"""`silosynth demo`: a real federation of processes on this machine, from provisioning to the release."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from silosynth.common.datasets import Records, load, save_npz
from silosynth.common.errors import ConfigError
from silosynth.common.partition import partition
from silosynth.common.publication.names import ReleaseName
from silosynth.common.queries import Query
from silosynth.common.shipped import shipped_backbones
from silosynth.deploy.federation import LocalFederation
from silosynth.deploy.processes import Processes
from silosynth.deploy.runs import follow
from silosynth.deploy.watch import RunView
from silosynth.server.advice import Advice, advise
from silosynth.server.config import EvaluationSettings
from silosynth.server.evaluation import ceiling
from silosynth.server.planning import Proposal, Verdict
from silosynth.server.recipes import Recipe, recipe_named
from silosynth.server.recipes.base import Task
from silosynth.server.recipes.outlook import Crowd


@dataclass(frozen=True)
class DemoOptions:
    folder: Path
    silos: int
    recipe: str
    epsilon: float
    budget: float
    delta: float
    partition: str
    seed: int


def run_demo(options: DemoOptions, console: Console) -> dict[str, Any]:
    """Start everything, run once, stop everything; returns what happened, for people and for JSON."""
    train, test = load("digits", split="train"), load("digits", split="test")
    advice = advice_for(options, train)  # an unknown recipe fails before anything is started
    folder = _fresh_folder(options.folder)
    console.print(f"[bold]silosynth demo[/]: {options.silos} silos on this machine, folder {folder}")
    console.print(f"In a browser: silosynth dashboard --folder {folder / 'federation/server'}", soft_wrap=True)
    if advice.verdict is not Verdict.enough:
        console.print(f"[yellow]Plan[/]: {advice.words}", soft_wrap=True, highlight=False)
    with Processes(folder / "logs") as processes:
        federation = LocalFederation(folder, processes)
        try:
            _provision(federation, options, train)
            with console.status(f"Starting Flower, {options.silos} guards and {options.silos} couriers, TLS on"):
                federation.start()
                save_npz(test, folder / "public-test.npz")
                torch.set_num_threads(1)  # the silos need the cores too, and so small a model gains nothing
                best = ceiling(train, test, EvaluationSettings())
            run = federation.submit(_run_config(options, federation, train, best))
            view = follow(run, console, check=lambda: processes.check("superlink", "superexec"))
            name = view.facts["released_dataset"]["name"]
            with console.status(f"Every silo pulls and verifies {name}"):
                pulled = federation.share(ReleaseName.parse(name))
        finally:
            federation.close()
    return _summary(view, run / "release", pulled)


def print_summary(summary: dict[str, Any], console: Console) -> None:
    scores = Table(title="Accuracy on public test data", title_justify="left")
    for heading in ("what", "accuracy"):
        scores.add_column(heading)
    for what, key in (
        ("trivial floor (always the largest class)", "floor"),
        ("[bold]model trained on the synthetic data[/]", "accuracy"),
        ("the recipe's own classifier", "own_classifier_accuracy"),
        ("non-private ceiling (pooled real data)", "ceiling"),
    ):
        if summary[key] is not None:
            scores.add_row(what, f"{100 * summary[key]:.1f} %")
    spending = Table(title="What each silo spent, by its own ledger", title_justify="left")
    for heading in ("silo", "epsilon", "of", "delta", "sent"):
        spending.add_column(heading)
    for silo in summary["silos"]:
        spending.add_row(
            silo["name"],
            f"{silo['epsilon_spent']:.3f}",
            f"{silo['epsilon_total']:g}",
            f"{summary['delta']:g}",
            f"{silo['bytes_sent'] / 1e3:.1f} kB",
        )
    console.print(scores, spending)
    console.print(f"Dataset  {summary['release']}\nPicture  {summary['picture']}", soft_wrap=True)
    console.print(f"Pulled and verified by every silo as {summary['name']}", soft_wrap=True)


def advice_for(options: DemoOptions, train: Records) -> Advice:
    recipe = recipe_named(options.recipe)
    task = Task(train.schema, options.epsilon, options.delta, options.seed)
    parameters = recipe.parameters(**_quick(recipe))
    proposal = Proposal(recipe, task, parameters, Crowd(options.silos, len(train) // options.silos))
    return advise(proposal, proposal.outlook())


def _quick(recipe: Recipe) -> dict[str, Any]:
    """A demo is not waited for: recipes that have presets are shown with their quick one."""
    return {"preset": "quick"} if "preset" in recipe.parameters.model_fields else {}


def _provision(federation: LocalFederation, options: DemoOptions, train: Records) -> None:
    """Deal the training records to the silos; each allows every mechanism within its budget."""
    shards = partition(options.partition, train.labels, options.silos, options.seed)
    for number, indices in enumerate(shards):
        federation.add_silo(
            f"silo-{number}",
            train.take(indices),
            budget={"epsilon": options.budget, "delta": options.delta},
            policy={"mechanisms": sorted(Query.kinds), "backbones": list(shipped_backbones()), "consent": "auto"},
        )


def _run_config(options: DemoOptions, federation: LocalFederation, train: Records, best: float) -> dict[str, Any]:
    schema = train.schema
    return {
        "name": "demo",
        "recipe": options.recipe,
        "seed": options.seed,
        "parameters": _quick(recipe_named(options.recipe)),
        "records": {"shape": list(schema.shape), "classes": schema.classes},
        "privacy": {"epsilon": options.epsilon, "delta": options.delta},
        "federation": {
            "silos": federation.silos,
            "quorum": max(1, options.silos // 2),
            "grace_seconds": 30.0,
        },
        "evaluation": {
            "ceiling": best,
            "test": {"source": "npz", "path": str(federation.folder / "public-test.npz"), "classes": schema.classes},
        },
    }


def _summary(view: RunView, release: Path, pulled: Mapping[str, Path]) -> dict[str, Any]:
    evaluation = json.loads((release / "evaluation.json").read_text())
    return {
        "release": str(release),
        "name": view.facts["released_dataset"]["name"],
        "pulled": {silo: str(folder) for silo, folder in pulled.items()},
        "picture": str(release / "contact-sheet.png"),
        "accuracy": evaluation["accuracy"],
        "own_classifier_accuracy": evaluation["own_classifier_accuracy"],
        "floor": evaluation["floor"],
        "ceiling": evaluation["ceiling"],
        "delta": view.facts["planning"]["delta"],
        "silos": [
            {
                "name": name,
                "epsilon_spent": silo.spent,
                "epsilon_total": silo.total,
                "bytes_sent": silo.bytes_sent,
                "state": silo.state,
            }
            for name, silo in view.silos.items()
        ],
    }


def _fresh_folder(wanted: Path) -> Path:
    """`wanted`, or the next free name beside it: an earlier demo is never overwritten."""
    for number in range(1, 1000):
        folder = wanted if number == 1 else wanted.with_name(f"{wanted.name}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        return folder.resolve()
    raise ConfigError(f"{wanted} and 999 folders beside it exist: remove some, or choose another --folder")
