"""`silosynth demo`: a real federation of processes on this machine, from provisioning to the release."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from silosynth.common.datasets import Records
from silosynth.common.errors import ConfigError
from silosynth.common.publication.names import ReleaseName
from silosynth.deploy.federation import LocalFederation
from silosynth.deploy.processes import Processes
from silosynth.deploy.runs import follow
from silosynth.deploy.simulation import Question, Simulation, public_test, quick
from silosynth.deploy.watch import RunView
from silosynth.server.advice import Advice, advise
from silosynth.server.config import EvaluationSettings
from silosynth.server.evaluation import ceiling
from silosynth.server.planning import Proposal, Verdict
from silosynth.server.recipes import recipe_named
from silosynth.server.recipes.base import Task
from silosynth.server.recipes.outlook import Crowd


def run_demo(wanted: Path, simulation: Simulation, question: Question, console: Console) -> dict[str, Any]:
    """Start everything, run once, stop everything; returns what happened, for people and for JSON."""
    train, test = simulation.records()
    assert test is not None, "digits come with a test set"
    advice = advice_for(simulation, question, train)  # an unknown recipe fails before anything is started
    folder = _fresh_folder(wanted)
    silos = simulation.silos
    console.print(f"[bold]silosynth demo[/]: {silos} silos on this machine, folder {folder}")
    console.print(f"In a browser: silosynth dashboard --folder {folder / 'federation/server'}", soft_wrap=True)
    if advice.verdict is not Verdict.enough:
        console.print(f"[yellow]Plan[/]: {advice.words}", soft_wrap=True, highlight=False)
    with Processes(folder / "logs") as processes:
        federation = LocalFederation(folder, processes)
        try:
            federation.settle(simulation, train)
            with console.status(f"Starting Flower, {silos} guards and {silos} couriers, TLS on"):
                federation.start()
                torch.set_num_threads(1)  # the silos need the cores too, and so small a model gains nothing
                best = ceiling(train, test, EvaluationSettings())
            evaluation = {"ceiling": best, "test": public_test(test, folder / "public-test.npz")}
            run = federation.submit(question.run_config(simulation, federation.silos, train, evaluation))
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


def advice_for(simulation: Simulation, question: Question, train: Records) -> Advice:
    recipe = recipe_named(question.recipe)
    task = Task(train.schema, question.epsilon, simulation.delta, simulation.seed)
    parameters = recipe.parameters(**quick(recipe))
    proposal = Proposal(recipe, task, parameters, Crowd(simulation.silos, len(train) // simulation.silos))
    return advise(proposal, proposal.outlook())


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
