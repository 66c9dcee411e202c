"""The command line. People and progress are on stderr; `--format json` prints one JSON document on stdout."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from silosynth.common.errors import SilosynthError
from silosynth.deploy import (
    attack_commands,
    backbone_commands,
    bench_commands,
    dashboard_commands,
    evaluate_commands,
    plan_commands,
    provision_commands,
    release_commands,
    run_commands,
    server_commands,
    silo_commands,
    sim_commands,
    vault_commands,
)
from silosynth.deploy.formats import Format, FormatOption
from silosynth.deploy.sim_options import (
    BudgetOption,
    DeltaOption,
    EpsilonOption,
    PartitionOption,
    RecipeOption,
    SeedOption,
)

app = typer.Typer(
    help="Federated, differentially private synthetic data: silos verify what leaves the building.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
silo_commands.app.add_typer(vault_commands.app)
app.command()(provision_commands.provision)
app.command()(plan_commands.plan)
app.command()(dashboard_commands.dashboard)
app.command()(evaluate_commands.evaluate)
app.command()(attack_commands.attack)
app.command()(bench_commands.bench)
app.add_typer(silo_commands.app, name="silo")
app.add_typer(server_commands.app, name="server")
app.add_typer(run_commands.app, name="run")
app.add_typer(release_commands.app, name="release")
app.add_typer(backbone_commands.app, name="backbone")
app.add_typer(sim_commands.app, name="sim")

console = Console(stderr=True)


@app.callback()
def root() -> None:
    """Show help unless a command is given."""


@app.command()
def demo(
    silos: Annotated[int, typer.Option(min=1, max=50, help="How many silos to simulate.")] = 5,
    recipe: RecipeOption = "ldpdc",
    epsilon: EpsilonOption = 4.0,
    budget: BudgetOption = 10.0,
    delta: DeltaOption = 1e-5,
    partition: PartitionOption = "iid",
    seed: SeedOption = 0,
    folder: Annotated[Path, typer.Option(help="Where everything is written.")] = Path("silosynth-demo"),
    output: FormatOption = Format.text,
) -> None:
    """Run a real federation on this machine: Flower, guards, couriers, TLS, one run on embedded digits.

    Ends with a synthetic dataset, its picture, its accuracy between floor and ceiling, and what each silo spent.
    """
    from silosynth.common.config import parse
    from silosynth.deploy.demo import print_summary, run_demo
    from silosynth.deploy.simulation import Question, Simulation

    dealt = {"silos": silos, "budget": budget, "delta": delta, "partition": partition, "seed": seed}
    question = Question(recipe=recipe, epsilon=epsilon, quorum=max(1, silos // 2))
    summary = run_demo(folder, parse(Simulation, dealt, "demo"), question, console)
    if output is Format.json:
        print(json.dumps(summary))
    else:
        print_summary(summary, console)


@silo_commands.app.command()
def guard(config: Annotated[Path, typer.Option(help="The silo's silo.toml.")] = Path("silo.toml")) -> None:
    """Serve the guard: the one process that reads records, keeps the ledger and draws the noise."""
    from silosynth.client.guard_process import serve

    raise typer.Exit(serve(config))


def main() -> None:
    """Entry point: our errors become one message and their exit code; an interrupt unwinds, so nothing is left."""
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        app()
    except SilosynthError as error:
        console.print(f"[red]{type(error).__name__}[/]: {escape(str(error))}", soft_wrap=True, highlight=False)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        console.print("Interrupted: everything that was started has been stopped.")
        sys.exit(130)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
