"""`silosynth run`: start, watch and list the runs of a server."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import tomli_w
import typer
from rich.console import Console
from rich.table import Table

from silosynth.deploy.formats import Format, FormatOption
from silosynth.deploy.server_folder import ServerFolder

app = typer.Typer(help="Start runs on a federation's server, and follow them.", no_args_is_help=True)
console = Console(stderr=True)

ServerOption = Annotated[Path, typer.Option("--server", help="The federation's server folder.")]


@app.command()
def start(
    config: Annotated[Path, typer.Argument(help="A run.toml: recipe, privacy, silos.", metavar="RUN.TOML")],
    server: ServerOption = Path("server"),
    output: FormatOption = Format.text,
) -> None:
    """Submit a run: check it, number it, hand it to Flower, and print what was asked for.

    The digest stands for the effective configuration, defaults included. A smallest run.toml:

        name = "first"
        recipe = "prototypes"
        records = { shape = [8, 8, 1], classes = 10 }
        privacy = { epsilon = 2.0, delta = 1e-5 }
        federation = { silos = ["st-mary", "charite"], quorum = 2 }

    The same run started again costs no silo anything: guards repeat the answers they have given.
    """
    from silosynth.deploy.runs import load_run

    run = load_run(config)
    folder = ServerFolder(server.absolute()).submit(run, os.environ)
    effective = run.model_dump(mode="json", exclude_none=True)
    if output is Format.json:
        facts = {"run": int(folder.name), "folder": str(folder), "config_digest": run.digest(), "config": effective}
        print(json.dumps(facts))
        return
    console.print(tomli_w.dumps(effective), markup=False, highlight=False)
    console.print(f"Run {folder.name} submitted, configuration {run.digest()}", highlight=False, soft_wrap=True)
    console.print(f"Next: silosynth run watch {folder.name} --server {server}", soft_wrap=True)


@app.command()
def watch(
    number: Annotated[int, typer.Argument(help="The run's number, as `run list` shows it.", metavar="NUMBER")],
    server: ServerOption = Path("server"),
    entries: Annotated[
        bool, typer.Option("--entries", help="Print the journal on stdout as it grows: a JSON object a line.")
    ] = False,
    output: FormatOption = Format.text,
) -> None:
    """Follow a run until it ends: what each silo is doing, bytes, privacy spent, how far synthesis is and its loss.

    Ends with the run's own exit code, so a script can wait for it. Watching can be stopped and taken up at any time.
    For scripts: with --entries every event is a line as it happens, `"kind": "working"` has share and loss, and a
    `picture` in the run's folder shows the images as they form.
    """
    from silosynth.deploy.runs import flower_still_has, follow, outcome, run_folder

    home = ServerFolder(server.absolute())
    folder = run_folder(home, number)
    view = follow(folder, console, flower_still_has(home, folder), _print_line if entries else None)
    if output is Format.json:
        print(json.dumps(outcome(folder, view)))
    else:
        console.print(f"Run {number} is finished: {folder / 'release'}", soft_wrap=True)


@app.command("list")
def list_runs(server: ServerOption = Path("server"), output: FormatOption = Format.text) -> None:
    """Every run of a server and how it went, oldest first."""
    from silosynth.deploy.runs import summaries

    found = summaries(ServerFolder(server.absolute()))
    if output is Format.json:
        print(json.dumps([asdict(summary) for summary in found]))
        return
    table = Table("run", "name", "recipe", "silos", "state", "last news", "configuration")
    for run in found:
        cells = (run.name, run.recipe, ", ".join(run.silos), run.state, run.last_news, run.config_digest[:12])
        table.add_row(str(run.run), *cells)
        if run.message:
            table.add_row("", "", "", "", run.message)
    console.print(table)


def _print_line(entry: dict[str, Any]) -> None:
    print(json.dumps(entry), flush=True)
