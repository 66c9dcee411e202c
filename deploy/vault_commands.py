"""`silosynth silo audit | budget | requests | approve | deny | adopt`: what the silo's people see and decide.

They work on the guard's files, whether it runs or not. Run them as the guard's user.
"""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from silosynth.deploy.formats import Format, FormatOption
from silosynth.deploy.kits import Kit

if TYPE_CHECKING:  # the accountants take seconds to import: not at the expense of every other command
    from silosynth.client.guard.inspection import Inspection

app = typer.Typer()
console = Console(stderr=True)

KitOption = Annotated[Path, typer.Option("--kit", help="The folder you were sent: it holds guard/ and courier/.")]
ConfigOption = Annotated[Path | None, typer.Option("--config", help="The silo.toml itself, instead of a kit.")]
DigestArgument = Annotated[str, typer.Argument(help="The query's digest, or its first 8 characters or more.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask again.")]


@app.command()
def audit(kit: KitOption = Path(), config: ConfigOption = None, output: FormatOption = Format.text) -> None:
    """Verify the whole ledger and print it: every release, every decision.

    Exit code 12 if anything in it was changed, 13 if it is older than it was.
    """
    from silosynth.deploy import vault as views

    document = views.audit(_open(kit, config))
    if output is Format.json:
        print(json.dumps(document))
        return
    headers = ("entry", "time", "dataset", "query", "protected", "noise", "rate", "count")
    table = Table(*headers, title=f"ledger of {document['silo']}")
    for entry in document["entries"]:
        event = entry["event"]
        count = f"{event['count']}, charged by the entries it was made of" if entry["made_of"] else str(event["count"])
        figures = (event["protected"], f"{event['noise_multiplier']:g}", f"{event['sampling_probability']:g}", count)
        table.add_row(str(entry["sequence"]), entry["created"], entry["dataset"], entry["query"], *figures)
    decisions = Table("time", "who", "decision", "dataset", "query", title="decisions")
    for act in document["decisions"]:
        decisions.add_row(act["time"], act["who"], act["verdict"], act["dataset"], act["digest"])
    console.print(table, decisions)
    console.print(f"{len(document['entries'])} entries and {len(document['decisions'])} decisions: all verified.")


@app.command()
def budget(kit: KitOption = Path(), config: ConfigOption = None, output: FormatOption = Format.text) -> None:
    """Show what was spent, what remains, and what one more release of each kind would cost."""
    from silosynth.deploy import vault as views

    document = views.budget(_open(kit, config))
    if output is Format.json:
        print(json.dumps(document))
        return
    console.print(
        f"{document['dataset']}: epsilon {document['epsilon_spent']:.4g} of {document['epsilon_total']:g} spent in "
        f"{document['releases']} releases, {document['epsilon_remaining']:.4g} remain (delta {document['delta']:g})"
    )
    if period := document["period"]:
        console.print(
            f"last {period['days']} days: epsilon {period['epsilon_spent']:.4g} of {period['epsilon_limit']:g}"
        )
    table = Table("mechanism", "of", "noise multiplier", "adds epsilon", "fits", title="one more release would cost")
    for row in document["one_more_release"]:
        figures = (f"{row['noise_multiplier']:g}", f"{row['epsilon_added']:.4g}", "yes" if row["fits"] else "no")
        table.add_row(row["mechanism"], row["of"], *figures)
    console.print(table)


@app.command()
def requests(kit: KitOption = Path(), config: ConfigOption = None, output: FormatOption = Format.text) -> None:
    """List the queries that wait, or waited, for this silo's consent."""
    from silosynth.deploy import vault as views

    documents = views.requests(_open(kit, config))
    if output is Format.json:
        print(json.dumps(documents))
        return
    for document in documents:
        _show(document)
    waiting = sum(document["state"] == "waiting" for document in documents)
    console.print(f"{waiting} of {len(documents)} requests wait for a decision.")


@app.command()
def approve(
    digest: DigestArgument,
    kit: KitOption = Path(),
    config: ConfigOption = None,
    days: Annotated[int | None, typer.Option(min=1, help="How long the approval holds; for ever if not said.")] = None,
    yes: YesOption = False,
    output: FormatOption = Format.text,
) -> None:
    """Let exactly this query through when it is asked again."""
    from silosynth.deploy import vault as views

    vault = _open(kit, config)
    expires = None if days is None else vault.clock() + timedelta(days=days)
    request = views.find_request(vault, digest)
    _show(views.describe(vault, request))
    if not yes:
        typer.confirm("Approve this query?", abort=True, err=True)
    vault.decisions.decide(request, "approved", views.operating_user(), expires)
    _report(vault, request.digest, output)


@app.command()
def deny(
    digest: DigestArgument, kit: KitOption = Path(), config: ConfigOption = None, output: FormatOption = Format.text
) -> None:
    """Refuse this query; an approval given before is taken back."""
    from silosynth.deploy import vault as views

    vault = _open(kit, config)
    request = views.find_request(vault, digest)
    vault.decisions.decide(request, "denied", views.operating_user())
    _show(views.describe(vault, request))
    _report(vault, request.digest, output)


@app.command()
def adopt(
    kit: KitOption = Path(),
    config: ConfigOption = None,
    yes: YesOption = False,
    output: FormatOption = Format.text,
) -> None:
    """Adopt policy and budget of silo.toml where they are looser than before; the guard never does so by itself."""
    from silosynth.client.guard.policy import check_names
    from silosynth.client.guard.terms import Terms
    from silosynth.client.mechanisms import MECHANISMS
    from silosynth.deploy import vault as views

    vault = _open(kit, config)
    check_names(vault.config.policy, MECHANISMS)
    document = views.adoption(vault)
    for kind in ("looser", "stricter"):
        for line in document[kind]:
            console.print(f"{kind}: {line}", highlight=False)
    if document["looser"]:
        if not yes:
            typer.confirm("Adopt these terms?", abort=True, err=True)
        vault.decisions.adopt(vault.dataset, Terms.of(vault.config), "adopted", views.operating_user())
        console.print("Adopted. The guard follows the new terms from its next start.")
    else:
        console.print("Nothing is looser than before: there is nothing to adopt.")
    if output is Format.json:
        print(json.dumps(document))


def _open(kit: Path, config: Path | None) -> Inspection:
    from silosynth.client.config import load_silo
    from silosynth.client.guard.inspection import Inspection

    return Inspection.of(load_silo(config or Kit(kit.absolute()).silo_toml))


def _show(document: dict[str, Any]) -> None:
    parameters = ", ".join(f"{name.replace('_', ' ')} {_said(value)}" for name, value in document["parameters"].items())
    through = f" through the backbone {', '.join(document['backbones'])}" if document["backbones"] else ""
    console.print(
        f"[bold]{document['digest']}[/] {document['state']}, asked {document['asked']}\n"
        f"  {document['mechanism'].replace('_', ' ')} of {document['dataset']}{through}: {parameters}; "
        f"{document['values']} values\n"
        f"  epsilon: {document['epsilon_alone']:.4g} by itself; {document['epsilon_spent']:.4g} of "
        f"{document['epsilon_total']:g} spent, {document['epsilon_after']:.4g} after it"
        + ("" if document["fits"] else ", which the budget does not allow")
        + (f"\n  {document['remark']}" if document["remark"] else ""),
        highlight=False,
        soft_wrap=True,
    )


def _said(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _report(vault: Inspection, digest: str, output: Format) -> None:
    from silosynth.deploy import vault as views

    document = next(document for document in views.requests(vault) if document["digest"] == digest)
    if output is Format.json:
        print(json.dumps(document))
    else:
        console.print(f"{document['state']}: {digest}", highlight=False, soft_wrap=True)
