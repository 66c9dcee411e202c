"""`silosynth dashboard`: a server's folder in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

console = Console(stderr=True)


def dashboard(
    folder: Annotated[Path, typer.Option(help="The federation's server folder.")] = Path("server"),
    host: Annotated[str | None, typer.Option(help="Where to listen, if not where server.toml says.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="0 takes a free port.")] = None,
) -> None:
    """Show a server's folder in a browser: privacy spent beside usefulness gained, live or long after a run.

    Federation, budget, runs, releases, evaluation, privacy evidence, audit; each page has a twin for programs, such as
    /budget.json. It only reads. `silosynth server run` serves it already; this is for a folder without a server, such
    as a demo's:

        silosynth dashboard --folder silosynth-demo/federation/server

    On loopback everybody on this machine may look. On any other host it speaks TLS with the server's certificate, and
    people log in with a token of `silosynth server grant NAME --dashboard`.
    """
    from silosynth.server.config import load_server
    from silosynth.server.dashboard.process import serve

    config = load_server(folder.absolute() / "server.toml")
    told = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    settings = config.dashboard.model_copy(update=told)
    serve(folder.absolute(), settings, lambda address: console.print(f"Dashboard: {address}  (Ctrl-C ends it)"))
