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
    from silosynth.deploy.site_service import serve_silo

    try:
        raise typer.Exit(serve_silo(Kit(kit.absolute()), console))
    except KeyboardInterrupt:
        console.print("Guard and courier have ended.")


@app.command()
def courier(kit: KitOption = Path()) -> None:
    """Run the courier alone: for sites where guard and courier are two users or two containers."""
    from silosynth.deploy.site_service import serve_courier

    try:
        serve_courier(Kit(kit.absolute()), console)
    except KeyboardInterrupt:
        console.print("The courier has ended.")


@app.command()
def pull(kit: KitOption = Path(), output: FormatOption = Format.text) -> None:
    """Pull and verify every finished dataset this silo does not have yet, now. `silo run` does it by itself."""
    from silosynth.client.config import load_courier
    from silosynth.client.releases.access import Access
    from silosynth.client.releases.catalog import Catalog
    from silosynth.client.releases.pulling import pull_new
    from silosynth.client.releases.shelf import Shelf

    home = Kit(kit.absolute())
    shelf = Shelf(home.releases)
    pulled = pull_new(Catalog(Access.of_silo(load_courier(home.courier_toml))), shelf)
    if output is Format.json:
        print(json.dumps({str(release): str(shelf.place(release)) for release in pulled}))
        return
    for release in pulled:
        console.print(f"{release}: pulled and verified, {shelf.place(release)}", soft_wrap=True)
    console.print(f"{len(pulled)} new. All that is here: silosynth release list --shelf {shelf.folder}", soft_wrap=True)


@app.command()
def evaluate(
    release: Annotated[str, typer.Argument(help="A pulled dataset, such as demo/3.", metavar="NAME/VERSION")],
    kit: KitOption = Path(),
    seeds: Annotated[int, typer.Option(min=1, help="How many models to train.")] = 3,
    output: FormatOption = Format.text,
) -> None:
    """How well does a model trained on a finished dataset do on this silo's own records? For your eyes only.

    Run it as the guard's user. The figures are exact, hence private: they are printed here and neither kept nor sent.
    Do not publish them: no ledger knows of them.
    """
    from silosynth.deploy.local_evaluation import evaluate_locally, score_table

    document = evaluate_locally(Kit(kit.absolute()), release, seeds)
    if output is Format.json:
        print(json.dumps(document))
    else:
        console.print(score_table(document))


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
