"""`silosynth server`: the server of a federation, in the foreground."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from silosynth.deploy.formats import Format, FormatOption

FolderOption = Annotated[Path, typer.Option(help="The federation's server folder.")]
app = typer.Typer(help="Commands for whoever runs a federation's server.", no_args_is_help=True)
console = Console(stderr=True)


@app.command()
def run(
    folder: FolderOption = Path("server"),
    output: FormatOption = Format.text,
) -> None:
    """Serve a federation: Flower for the silos that server.toml lists, and the catalog of finished datasets.

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
            facts = {"fleet": config.flower.fleet, "control": config.flower.control, "silos": silos}
            print(json.dumps(facts), flush=True)
        console.print(f"Serving silos on {config.flower.fleet}: {', '.join(silos) or 'none are registered yet'}")
        console.print(f"Logs are in {server.folder / 'logs'}. Next: silosynth run start RUN.TOML --server {folder}")

    try:
        serve_federation(server, console, ready)
    except KeyboardInterrupt:
        console.print("The server and all its processes have ended.")


@app.command()
def grant(
    consumer: Annotated[str, typer.Argument(help="Whom the access is for.", metavar="NAME")],
    access: Annotated[Path, typer.Option(help="The file to write and to send to the consumer.")] = Path("access.toml"),
    folder: FolderOption = Path("server"),
) -> None:
    """Let somebody pull finished datasets: write the one file that `silosynth release pull` needs.

    The file holds a token, which is kept nowhere else, and the certificate and key by which the consumer knows the
    server and its signature. Whoever has the file has access: send it by a trustworthy way.
    """
    from silosynth.deploy.consumers import write_access
    from silosynth.deploy.server_folder import ServerFolder

    write_access(ServerFolder(folder.absolute()), consumer, access)
    console.print(f"Access of {consumer}: {access}. To end it: silosynth server revoke {consumer}", soft_wrap=True)


@app.command()
def revoke(
    consumer: Annotated[str, typer.Argument(help="Whose access ends.", metavar="NAME")],
    folder: FolderOption = Path("server"),
) -> None:
    """End a consumer's access to the catalog, at once. What it has pulled it keeps."""
    from silosynth.server.releases.tokens import Tokens

    Tokens(folder).revoke(consumer)
    console.print(f"{consumer} has no access any more.")


@app.command()
def consumers(folder: FolderOption = Path("server"), output: FormatOption = Format.text) -> None:
    """Who may pull finished datasets with a token."""
    from silosynth.server.releases.tokens import Tokens

    names = Tokens(folder).consumers()
    if output is Format.json:
        print(json.dumps(names))
    else:
        console.print("\n".join(names) or "Nobody: see `silosynth server grant`.")
