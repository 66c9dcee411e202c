"""`silosynth sim`: a federation of N simulated silos, by containers or by processes."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from silosynth.common.errors import ConfigError
from silosynth.deploy.formats import Format, FormatOption
from silosynth.deploy.sim_options import (
    BudgetOption,
    DeltaOption,
    EpsilonOption,
    PartitionOption,
    RecipeOption,
    SeedOption,
)

if TYPE_CHECKING:
    from silosynth.deploy.sim.engine import Engine, SimFolder
    from silosynth.deploy.sim.session import Session

app = typer.Typer(help="Simulate a federation of N silos, in containers or as processes.", no_args_is_help=True)
console = Console(stderr=True)


class EngineName(StrEnum):
    docker = "docker"
    process = "process"


FolderOption = Annotated[Path, typer.Option(help="Where the federation lives: ledgers, logs, runs, datasets.")]
EngineOption = Annotated[EngineName, typer.Option(help="Containers, or processes of this machine.")]
NameArgument = Annotated[
    str, typer.Argument(help="A silo such as silo-3, or a part of the server such as superlink.", metavar="NAME")
]
_FOLDER = Path("silosynth-sim")
_ENGINE_FILE = "engine"


@app.command()
def up(
    silos: Annotated[int, typer.Option(min=1, max=50, help="How many silos to simulate.")] = 4,
    data: Annotated[str, typer.Option(help="digits, or a path to records that are dealt to the silos.")] = "digits",
    classes: Annotated[
        int | None, typer.Option(min=1, help="Of the records, where their format does not tell.")
    ] = None,
    recipe: RecipeOption = "prototypes",
    epsilon: EpsilonOption = 4.0,
    budget: BudgetOption = 10.0,
    delta: DeltaOption = 1e-5,
    partition: PartitionOption = "iid",
    seed: SeedOption = 0,
    quorum: Annotated[int | None, typer.Option(min=1, help="Fewest silos that must answer; half, if not said.")] = None,
    chaos: Annotated[bool, typer.Option("--chaos", help="Kill silos and bring them back during the run.")] = False,
    engine: EngineOption = EngineName.docker,
    folder: FolderOption = _FOLDER,
    source: Annotated[Path, typer.Option(help="silosynth's source folder: images are built from it.")] = Path(),
    build_arg: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="For the Dockerfile, such as BASE_IMAGE=...")
    ] = None,
    build_network: Annotated[str | None, typer.Option(help="The network that builds use, such as host.")] = None,
    output: FormatOption = Format.text,
) -> None:
    """Bring up a federation of N silos, run once, and leave it up.

    For example, in silosynth's source folder:

        silosynth sim up --silos 8 --recipe prototypes --chaos

    Every silo is a guard without a network and a courier without records, mutual TLS on. `sim up` again, in the same
    folder, starts what is missing and runs anew; the same question costs nothing twice. `sim down` ends everything and
    leaves the folder with ledgers and datasets. With --engine process the same federation runs without containers.
    """
    from silosynth.common.config import parse
    from silosynth.deploy.simulation import Question, Simulation

    described = {"silos": silos, "data": data, "classes": classes, "partition": partition, "budget": budget}
    simulation = parse(Simulation, described | {"delta": delta, "seed": seed}, "sim")
    wanted = quorum or max(1, silos // 2)
    if wanted > silos:
        raise ConfigError(f"a quorum of {wanted} is more than {silos} silos")
    question = parse(Question, {"name": "sim", "recipe": recipe, "epsilon": epsilon, "quorum": wanted}, "sim")
    if (folder / _ENGINE_FILE).exists() and (folder / _ENGINE_FILE).read_text() != engine.value:
        raise ConfigError(f"{folder} was made for the other engine: choose another --folder")
    session = _session(folder, engine)
    sizes = _images(session.engine, source, build_arg or [], build_network)
    session.prepare(simulation)
    (folder / _ENGINE_FILE).write_text(engine.value)
    document = _bring_up(session, sizes)
    document |= _run(session, question, chaos)
    if output is Format.json:
        print(json.dumps(document))


@app.command()
def down(folder: FolderOption = _FOLDER) -> None:
    """End every part of a simulated federation. Its folder, with ledgers and datasets, is left."""
    _existing(folder).engine.down()
    console.print(f"Nothing runs any more. What the federation left is in {folder}", soft_wrap=True)


@app.command()
def scale(
    silos: Annotated[int, typer.Argument(min=1, max=50, help="How many silos there shall be.")],
    folder: FolderOption = _FOLDER,
) -> None:
    """Let silos join, or the last ones leave, while the federation is up. Then `sim up` runs anew."""
    session = _existing(folder)
    session.scale(silos)
    console.print(f"Silos are now: {', '.join(session.home.silos())}", soft_wrap=True)


@app.command()
def kill(name: NameArgument, folder: FolderOption = _FOLDER) -> None:
    """Let a silo, or a part of the server, vanish without a farewell. `sim start` brings it back."""
    _existing(folder).engine.kill(name)
    console.print(f"{name} was killed. Next: silosynth sim start {name}")


@app.command()
def start(name: NameArgument, folder: FolderOption = _FOLDER) -> None:
    """Bring back what was killed: it goes on with its own ledger."""
    _existing(folder).engine.revive(name)
    console.print(f"{name} is back.")


@app.command()
def logs(name: NameArgument, folder: FolderOption = _FOLDER) -> None:
    """What a silo, or a part of the server, has said so far."""
    print(_existing(folder).engine.log(name))


@app.command()
def status(folder: FolderOption = _FOLDER, output: FormatOption = Format.text) -> None:
    """Every part, whether it is healthy, and the memory it takes."""
    parts = _existing(folder).engine.parts()
    if output is Format.json:
        print(json.dumps([{"name": part.name, "state": part.state, "memory": part.memory} for part in parts]))
        return
    table = Table("part", "state", "memory")
    for part in parts:
        table.add_row(part.name, part.state, f"{part.memory / 1e6:.0f} MB")
    console.print(table)


def _session(folder: Path, name: EngineName) -> Session:
    from silosynth.deploy.sim.engine import SimFolder
    from silosynth.deploy.sim.session import Session

    home = SimFolder(folder.absolute())
    return Session(home, _engine(home, name))


def _existing(folder: Path) -> Session:
    from silosynth.deploy.sim.engine import SimFolder

    SimFolder(folder.absolute()).simulation()  # says what is missing
    return _session(folder, EngineName((folder / _ENGINE_FILE).read_text()))


def _engine(home: SimFolder, name: EngineName) -> Engine:
    if name is EngineName.process:
        from silosynth.deploy.sim.process_engine import ProcessEngine

        return ProcessEngine(home)
    from silosynth.deploy.sim.docker_engine import DockerEngine

    return DockerEngine(home)


def _images(engine: Engine, source: Path, arguments: list[str], network: str | None) -> dict[str, int]:
    from silosynth.deploy.sim.docker_engine import DockerEngine
    from silosynth.deploy.sim.images import ensure

    if not isinstance(engine, DockerEngine):
        return {}
    if bare := [argument for argument in arguments if "=" not in argument]:
        raise ConfigError(f"--build-arg {bare[0]}: not of the form NAME=VALUE")
    pairs = dict(argument.split("=", 1) for argument in arguments)
    with console.status("Building images") as shown:
        return ensure(engine.client, source, pairs, network, shown.update)


def _bring_up(session: Session, sizes: dict[str, int]) -> dict[str, Any]:
    with console.status("Starting every part"):
        healthy = session.engine.up()
    parts = session.engine.parts()
    for image, size in sizes.items():
        console.print(f"Image {image}: {size / 1e6:.0f} MB", highlight=False)
    table = Table("part", "answered after", "memory", title="What runs", title_justify="left")
    for part in parts:
        seconds = healthy.get(part.name)
        table.add_row(part.name, "" if seconds is None else f"{seconds:.0f} s", f"{part.memory / 1e6:.0f} MB")
    console.print(table)
    memory = {part.name: part.memory for part in parts}
    return {"images": sizes, "seconds_to_healthy": healthy, "memory": memory}


def _run(session: Session, question: Any, chaos: bool) -> dict[str, Any]:
    from silosynth.common.publication.names import ReleaseName

    run, view = session.run(question, console, chaos)
    name = view.facts["released_dataset"]["name"]
    with console.status(f"Every silo pulls and verifies {name}"):
        pulled = session.pulled(ReleaseName.parse(name))
    table = Table(
        "silo", "epsilon spent", "of", title=f"{name}, pulled and verified by every silo", title_justify="left"
    )
    for silo, facts in view.silos.items():
        table.add_row(silo, f"{facts.spent:.3f}", f"{facts.total:g}")
    console.print(table)
    dashboard = session.engine.dashboard(f"sim-{run.name}")
    console.print(f"Dataset    {run / 'release'}\nDashboard  {dashboard}", soft_wrap=True, highlight=False)
    console.print(
        f"The federation stays up. To end it: silosynth sim down --folder {session.home.folder}", soft_wrap=True
    )
    spent = {silo: facts.spent for silo, facts in view.silos.items()}
    release = {"run": int(run.name), "name": name, "release": str(run / "release"), "dashboard": dashboard}
    return release | {"pulled": {silo: str(place) for silo, place in pulled.items()}, "spent": spent}
