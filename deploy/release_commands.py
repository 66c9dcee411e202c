"""`silosynth release`: finished datasets, for whoever uses them and for whoever publishes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markdown import Markdown
from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

from silosynth.deploy.formats import Format, FormatOption
from silosynth.deploy.progress import share_done

if TYPE_CHECKING:
    from silosynth.client.releases.shelf import Shelf

app = typer.Typer(help="Finished datasets: find, pull, check, convert, enlarge, take back.", no_args_is_help=True)
console = Console(stderr=True)

NameArgument = Annotated[str, typer.Argument(help="Name and version, such as demo/3.", metavar="NAME/VERSION")]
PlaceArgument = Annotated[
    str, typer.Argument(help="A release folder, or the name of one on the shelf, such as demo/3.", metavar="RELEASE")
]
AccessOption = Annotated[
    Path | None, typer.Option(help="Ask the catalog, with the access file you were sent, instead of the shelf.")
]
RequiredAccess = Annotated[Path, typer.Option(help="The access file you were sent.")]
ShelfOption = Annotated[
    Path | None, typer.Option(help="Where pulled releases are kept, if not $SILOSYNTH_RELEASES or ~/.silosynth.")
]
PublisherOption = Annotated[str | None, typer.Option(help="The public key, in hexadecimal, that must have signed.")]


@app.command("list")
def list_releases(access: AccessOption = None, shelf: ShelfOption = None, output: FormatOption = Format.text) -> None:
    """What the catalog offers (--access), or what has been pulled already."""
    from silosynth.deploy import releases as views

    found = views.on_shelf(_shelf(shelf)) if access is None else views.in_catalog(access)
    if output is Format.json:
        print(json.dumps(found))
    else:
        console.print(views.as_table(found))


@app.command()
def show(
    release: NameArgument,
    access: AccessOption = None,
    shelf: ShelfOption = None,
    output: FormatOption = Format.text,
) -> None:
    """The dataset card of a release; with --format json its facts and its privacy card."""
    from silosynth.deploy import releases as views

    document = views.shown_on_shelf(_shelf(shelf), release) if access is None else views.shown(access, release)
    if output is Format.json:
        print(json.dumps(document))
    else:
        console.print(Markdown(document["readme"].split("---\n", 2)[-1]))


@app.command()
def pull(
    release: NameArgument,
    access: RequiredAccess = Path("access.toml"),
    shelf: ShelfOption = None,
    output: FormatOption = Format.text,
) -> None:
    """Fetch a release from the catalog and verify it. A pull that was cut off goes on where it stopped.

    Exit code 20 if server or token are not what they should be, 24 if the catalog does not answer, 30 if what came is
    not what the publisher signed, 31 if the release was taken back.
    """
    from silosynth.client.releases.access import Access
    from silosynth.client.releases.catalog import Catalog
    from silosynth.common.publication.names import ReleaseName

    catalog, columns = Catalog(Access.from_file(access)), (BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(release)
        folder = catalog.pull(
            ReleaseName.parse(release),
            _shelf(shelf),
            lambda done, total: bar.update(task, completed=done, total=total),
        )
    if output is Format.json:
        print(json.dumps({"release": release, "folder": str(folder)}))
    else:
        console.print(f"{release}: pulled and verified, {folder}", soft_wrap=True)


@app.command()
def verify(
    release: PlaceArgument,
    publisher: PublisherOption = None,
    shelf: ShelfOption = None,
    output: FormatOption = Format.text,
) -> None:
    """Check a release: signature, every file, every silo's receipt, every ledger head, every epsilon.

    Exit code 30, and the name of the file, if anything is not as it was signed. Without --publisher whoever signed it
    is believed: compare the key that is printed with the one you were told.
    """
    from silosynth.common.publication.signature import SIGNATURE, Signature
    from silosynth.common.publication.verification import verify_release

    folder = release_folder(release, shelf)
    manifest = verify_release(folder, publisher)
    signer = Signature.from_bytes((folder / SIGNATURE).read_bytes()).public_key
    if output is Format.json:
        privacy = manifest.privacy.model_dump(mode="json")
        print(json.dumps({"release": str(manifest.release), "publisher": signer, "privacy": privacy}))
        return
    console.print(f"{manifest.release}: all {len(manifest.files)} files, {len(manifest.receipts)} receipts and the")
    console.print(f"epsilon are as signed by {signer}", soft_wrap=True, highlight=False)


@app.command()
def export(
    release: PlaceArgument,
    target: Annotated[Path, typer.Argument(help="The parquet file to write.", metavar="FILE.parquet")],
    shelf: ShelfOption = None,
) -> None:
    """Convert a release to one parquet file, images and labels in it; it is verified first."""
    from silosynth.client.releases.export import export_parquet

    rows = export_parquet(release_folder(release, shelf), target)
    console.print(f"{rows} records: {target}", soft_wrap=True)


@app.command()
def synthesize(
    release: PlaceArgument,
    images: Annotated[int, typer.Option(min=1, max=10_000_000, help="How many, of all classes together.")],
    seed: Annotated[int, typer.Option(min=0, help="Another seed makes other images.")] = 1,
    into: Annotated[Path | None, typer.Option("--output", help="The folder to write.")] = None,
    shelf: ShelfOption = None,
    output: FormatOption = Format.text,
) -> None:
    """Make any number of further images from the statistics of a release, without asking anybody: it costs no privacy.

    Written as an ImageFolder and as arrays. If it is interrupted, the same command goes on where it stopped.
    """
    from silosynth.client.releases.synthesis import Order, synthesize_more
    from silosynth.common.synthesis.again import synthesize_again

    folder = release_folder(release, shelf)
    target = into or Path(f"{'-'.join(folder.absolute().parts[-2:])}-{images}-images")
    with share_done(console, release) as report:
        made = synthesize_more(folder, Order(images, seed), target, synthesize_again, report)
    if output is Format.json:
        print(json.dumps({"images": made, "folder": str(target)}))
    else:
        console.print(f"{made} images: {target}", soft_wrap=True)


@app.command()
def withdraw(
    release: NameArgument,
    reason: Annotated[str, typer.Option(help="Why: everybody who asks for the release is told.")],
    server: Annotated[Path, typer.Option("--server", help="The federation's server folder.")] = Path("server"),
) -> None:
    """Take a release back, on the server that published it: listed ever after with the reason, never handed out again.

    Silos and consumers that have pulled it learn of it when they next ask; what was made public stays public.
    """
    from silosynth.common.publication.names import ReleaseName
    from silosynth.server.releases.store import STORE_FOLDER, Store

    Store(server / STORE_FOLDER).withdraw(ReleaseName.parse(release), reason)
    console.print(f"{release} is withdrawn: {reason}", soft_wrap=True, markup=False)


def _shelf(folder: Path | None) -> Shelf:
    from silosynth.client.releases.shelf import Shelf

    return Shelf.default() if folder is None else Shelf(folder)


def release_folder(release: str, shelf: Path | None) -> Path:
    from silosynth.common.publication.names import ReleaseName

    return Path(release) if Path(release).is_dir() else _shelf(shelf).find(ReleaseName.parse(release))
