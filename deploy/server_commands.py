"""`silosynth server`: the server of a federation, in the foreground."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from silosynth.common.errors import ConfigError
from silosynth.deploy.formats import Format, FormatOption

if TYPE_CHECKING:
    from silosynth.server.releases.tokens import Tokens

FolderOption = Annotated[Path, typer.Option(help="The federation's server folder.")]
DashboardOption = Annotated[bool, typer.Option("--dashboard", help="Of the dashboard, not of the datasets.")]
app = typer.Typer(help="Commands for whoever runs a federation's server.", no_args_is_help=True)
console = Console(stderr=True)


@app.command()
def run(
    folder: FolderOption = Path("server"),
    output: FormatOption = Format.text,
) -> None:
    """Serve a federation: Flower for the silos that server.toml lists, the catalog of finished datasets, the dashboard.

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
            print(json.dumps({**facts, "dashboard": config.dashboard_address}), flush=True)
        console.print(f"Serving silos on {config.flower.fleet}: {', '.join(silos) or 'none are registered yet'}")
        console.print(f"Dashboard: {config.dashboard_address}")
        console.print(f"Logs are in {server.folder / 'logs'}. Next: silosynth run start RUN.TOML --server {folder}")

    try:
        serve_federation(server, console, ready)
    except KeyboardInterrupt:
        console.print("The server and all its processes have ended.")


@app.command()
def part(
    name: Annotated[str, typer.Argument(help="superlink, coordinator, catalog or admission.", metavar="PART")],
    folder: FolderOption = Path("server"),
) -> None:
    """Run one part of a server alone, in the foreground: for containers, whose engine starts and watches each.

    superlink gathers the silos, coordinator starts a process for each run, catalog hands out finished datasets,
    admission keeps Flower's list of silos as server.toml has it. All share the folder and one network address.
    """
    from silosynth.deploy.server_folder import ServerFolder
    from silosynth.deploy.supervision import ADMISSION, PARTS, run_part

    if name not in (*PARTS, ADMISSION):
        raise ConfigError(f"a server has no part {name!r}: choose one of {', '.join((*PARTS, ADMISSION))}")
    run_part(ServerFolder(folder.absolute()), name, console)


@app.command()
def grant(
    consumer: Annotated[str, typer.Argument(help="Whom the access is for.", metavar="NAME")],
    access: Annotated[Path, typer.Option(help="The file to write and to send to the consumer.")] = Path("access.toml"),
    folder: FolderOption = Path("server"),
    dashboard: DashboardOption = False,
) -> None:
    """Let somebody pull finished datasets: write the one file that `silosynth release pull` needs.

    The file holds a token, which is kept nowhere else, and the certificate and key by which the consumer knows the
    server and its signature. Whoever has the file has access: send it by a trustworthy way.

    With --dashboard, let somebody look at the dashboard from elsewhere instead: the token to log in with is printed.
    """
    from silosynth.deploy.consumers import write_access
    from silosynth.deploy.server_folder import ServerFolder

    if dashboard:
        print(_tokens(folder, dashboard).grant(consumer))
        console.print(f"Told once. To end it: silosynth server revoke {consumer} --dashboard", soft_wrap=True)
        return
    write_access(ServerFolder(folder.absolute()), consumer, access)
    console.print(f"Access of {consumer}: {access}. To end it: silosynth server revoke {consumer}", soft_wrap=True)


@app.command()
def revoke(
    consumer: Annotated[str, typer.Argument(help="Whose access ends.", metavar="NAME")],
    folder: FolderOption = Path("server"),
    dashboard: DashboardOption = False,
) -> None:
    """End somebody's access, at once: to the catalog, or to the dashboard. What was pulled is kept."""
    _tokens(folder, dashboard).revoke(consumer)
    console.print(f"{consumer} has no access any more.")


@app.command()
def consumers(
    folder: FolderOption = Path("server"), dashboard: DashboardOption = False, output: FormatOption = Format.text
) -> None:
    """Who may pull finished datasets with a token, or look at the dashboard with one."""
    names = _tokens(folder, dashboard).consumers()
    if output is Format.json:
        print(json.dumps(names))
    else:
        console.print("\n".join(names) or "Nobody: see `silosynth server grant`.")


def _tokens(folder: Path, dashboard: bool) -> Tokens:
    from silosynth.server.releases.tokens import DASHBOARD_TOKENS_FOLDER, TOKENS_FOLDER, Tokens

    return Tokens(folder, DASHBOARD_TOKENS_FOLDER if dashboard else TOKENS_FOLDER)
