"""Plans of runs: from run.toml and options to a proposal, and from that to a document and tables."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from silosynth.common.config import load, parse
from silosynth.common.errors import ConfigError
from silosynth.common.schema import Schema
from silosynth.server.advice import advise
from silosynth.server.config import EvaluationSettings, RunConfig
from silosynth.server.narration import human_bytes
from silosynth.server.planning import Proposal, Verdict, costs, what_if
from silosynth.server.recipes import recipe_named
from silosynth.server.recipes.base import Task
from silosynth.server.recipes.outlook import Crowd, Outlook

TOO_LITTLE = Verdict.too_little.value


def proposal(config: Path | None, records: int, options: dict[str, Any], settings: dict[str, Any]) -> Proposal:
    """What run.toml says, if there is one; what options say comes before it."""
    said: dict[str, Any] = {"delta": 1e-5, "parameters": {}} | (_of_file(config) if config else {}) | options
    if missing := [name for name in ("recipe", "epsilon", "silos", "classes", "shape") if name not in said]:
        raise ConfigError(f"say {', '.join(f'--{name}' for name in missing)}, or name a run.toml")
    recipe = recipe_named(said["recipe"])
    parameters = parse(recipe.parameters, said["parameters"] | settings, "parameters")
    task = Task(Schema(said["shape"], said["classes"]), said["epsilon"], said["delta"])
    return Proposal(
        recipe, task, parameters, Crowd(said["silos"], records), said.get("evaluation", EvaluationSettings())
    )


def _of_file(path: Path) -> dict[str, Any]:
    run = load(RunConfig, path)
    return {
        "recipe": run.recipe,
        "epsilon": run.privacy.epsilon,
        "delta": run.privacy.delta,
        "silos": len(run.federation.silos),
        "classes": run.records.classes,
        "shape": run.records.shape,
        "parameters": run.parameters,
        "evaluation": run.evaluation,
    }


def document(proposal: Proposal) -> dict[str, Any]:
    """For programs."""
    outlook, task = proposal.outlook(), proposal.task
    return {
        "recipe": proposal.recipe.name,
        "parameters": proposal.parameters.model_dump(mode="json"),
        "records": {"shape": task.schema.shape, "classes": task.schema.classes},
        "budget": {
            "epsilon": task.epsilon,
            "delta": task.delta,
            "silo_epsilon": proposal.evaluation.silo_epsilon,
            "baselines": list(proposal.evaluation.baselines),
        },
        "crowd": asdict(proposal.crowd),
        "costs": asdict(costs(proposal, outlook)),
        "work": {"silo_views": outlook.silo_views, "server_views": outlook.server_views},
        **_noise(outlook),
        "what_if": [{"change": change, **_noise(changed)} for change, changed in what_if(proposal, outlook)],
        "advice": asdict(advise(proposal, outlook)),
    }


def _noise(outlook: Outlook) -> dict[str, Any]:
    return {
        "noise_to_signal": outlook.noise_to_signal,
        "bearable": outlook.bearable,
        "verdict": Verdict.of(outlook).value,
    }


def tables(document: dict[str, Any]) -> tuple[Table, Table]:
    """For people: what it costs each silo, and what the noise does."""
    return _cost_table(document), _noise_table(document)


def _cost_table(document: dict[str, Any]) -> Table:
    cost, budget, work = document["costs"], document["budget"], document["work"]
    table = Table(title=f"What {document['recipe']} would cost each silo", title_justify="left", show_header=False)
    events = [f"{e['count']} x Gaussian" + _rate(e["sampling_probability"]) for e in cost["events"]]
    scores = f" and {budget['silo_epsilon']:g} for scores" if budget["silo_epsilon"] else ""
    scores += f", as much again for {' and '.join(budget['baselines'])}" if budget["baselines"] else ""
    rows = {
        "epsilon": f"{cost['epsilon']:.3f} of {budget['epsilon']:g}{scores}, at delta {budget['delta']:g}",
        "by Renyi DP, as a check": f"{cost['rdp_epsilon']:.3f}",
        "noise multiplier": f"{cost['noise_multiplier']:.3f}",
        "events": ", ".join(events),
        "queries": f"{cost['queries']}",
        "sends": f"{human_bytes(cost['upload_bytes'])}, {cost['values']:,} values",
        "looks through a network": f"{work['silo_views']:,} times at a record" if work["silo_views"] else "",
        "the server does so": f"{work['server_views']:,} times, and back" if work["server_views"] else "",
    }
    for what, value in rows.items():
        if value:
            table.add_row(what, value)
    return table


def _rate(probability: float) -> str:
    return f" on a sample of {probability:g}" if probability < 1 else ""


def _noise_table(document: dict[str, Any]) -> Table:
    table = Table("", "noise / signal", "bears", "", title="Noise in what is learned of a class", title_justify="left")
    crowd = document["crowd"]
    proposed = f"as proposed: epsilon {document['budget']['epsilon']:g}, {crowd['silos']} x {crowd['records']} records"
    for row in ({"change": proposed, **document}, *document["what_if"]):
        style = {"too little data": "red", "scarce data": "yellow"}.get(row["verdict"], "green")
        cells = (escape(row["change"]), f"{row['noise_to_signal']:.3g}", f"{row['bearable']:.2g}")
        table.add_row(*cells, f"[{style}]{row['verdict']}[/]")
    return table
