"""`silosynth server`: the server of a federation, in the foreground."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from silosynth.deploy.formats import Format, FormatOption

app = typer.Typer(help="Commands for whoever runs a federation's server.", no_args_is_help=True)
console = Console(stderr=True)


@app.command()
def run(
    folder: Annotated[Path, typer.Option(help="The federation's server folder.")] = Path("server"),
    output: FormatOption = Format.text,
) -> None:
    """Serve a federation: Flower with TLS and node authentication, for the silos that server.toml lists.

    Stays in the foreground; Ctrl-C ends everything. Silos that `silosynth provision` adds or removes are admitted or
    turned out within seconds. If Flower's SuperLink dies it is started again, aloud, and runs go on. State, logs and
    runs are kept in the folder. With --format json, one line on stdout says when the server is ready.
    """
    from silosynth.deploy.server_folder import ServerFolder
    from silosynth.deploy.supervision import serve_federation

    server = ServerFolder(folder.absolute())

    def ready() -> None:
        config = server.config()
        silos = [silo.name for silo in config.silos]
        if output is Format.json:
            print(
                json.dumps({"fleet": config.flower.fleet, "control": config.flower.control, "silos": silos}), flush=True
            )
        console.print(f"Serving silos on {config.flower.fleet}: {', '.join(silos) or 'none are registered yet'}")
        console.print(f"Logs are in {server.folder / 'logs'}. Next: silosynth run start RUN.TOML --server {folder}")

    try:
        serve_federation(server, console, ready)
    except KeyboardInterrupt:
        console.print("The server and all its processes have ended.")
