"""`silosynth silo`: what the holder of a data silo runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from silosynth.common.errors import ConfigError
from silosynth.deploy.formats import Format, FormatOption
from silosynth.deploy.kits import Kit

app = typer.Typer(help="Commands for the holder of a data silo.", no_args_is_help=True)
console = Console(stderr=True)

KitOption = Annotated[Path, typer.Option("--kit", help="The folder you were sent: it holds guard/ and courier/.")]


@app.command()
def run(kit: KitOption = Path()) -> None:
    """Run this silo: the guard, and the courier in its sandbox, in the foreground.

    Ctrl-C ends both. Neither is restarted: if one ends, the other is ended too, and the exit code is the guard's own
    (11 budget, 12 damaged ledger, 13 ledger older than the server has seen...), so that somebody looks.
    """
    from silosynth.deploy.supervision import serve_silo

    try:
        raise typer.Exit(serve_silo(Kit(kit.absolute()), console))
    except KeyboardInterrupt:
        console.print("Guard and courier have ended.")


@app.command()
def courier(kit: KitOption = Path()) -> None:
    """Run the courier alone: for sites where guard and courier are two users or two containers."""
    from silosynth.deploy.supervision import serve_courier

    try:
        serve_courier(Kit(kit.absolute()), console)
    except KeyboardInterrupt:
        console.print("The courier has ended.")


@app.command()
def doctor(kit: KitOption = Path(), output: FormatOption = Format.text) -> None:
    """Check everything a site can get wrong, and say how to put each thing right.

    Files and their permissions, both TOML files, certificates and keys, records, policy, budget, ledger, disk, the
    guard's socket, the way to the server. Changes nothing and asks the server nothing. Exit code 0 without problems,
    else 3; warnings are no problems.
    """
    from silosynth.deploy.doctor import as_document, as_table, examine, healthy

    home = Kit(kit.absolute())
    findings = list(examine(home))
    if output is Format.json:
        print(json.dumps(as_document(home, findings)))
    else:
        console.print(as_table(findings))
        console.print("No problem found." if healthy(findings) else "There are problems: see the last column.")
    if not healthy(findings):
        raise typer.Exit(ConfigError.exit_code)
