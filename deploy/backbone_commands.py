"""`silosynth backbone`: train public networks, and look at them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column, Table

from silosynth.common.errors import ConfigError
from silosynth.deploy.formats import Format, FormatOption

if TYPE_CHECKING:
    import torch

    from silosynth.common.backbones import Backbone
    from silosynth.common.backbones.pretraining import PretrainingPlan, Report
    from silosynth.common.backbones.training_images import TrainingImages

app = typer.Typer(help="Public networks through which records are summarized.", no_args_is_help=True)
console = Console(stderr=True)

_LINES = 50  # of progress in a log file


@app.command()
def pretrain(
    out: Annotated[Path, typer.Option(help="The file to write, .safetensors.")],
    procedural: Annotated[bool, typer.Option("--procedural", help="On images drawn by procedure: no data.")] = False,
    images: Annotated[Path | None, typer.Option(help="On public images: a folder of folders, one each class.")] = None,
    name: Annotated[str, typer.Option(help="The network: residual-16, residual-24 or wrn-22-8.")] = "residual-24",
    channels: Annotated[int, typer.Option(help="1 for grey images, 3 for colour.")] = 1,
    side: Annotated[int, typer.Option(help="Height and width of the training images.")] = 32,
    steps: Annotated[int, typer.Option(min=1)] = 6000,
    batch: Annotated[int, typer.Option(min=2, help="Images a step.")] = 128,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same backbone on the same machine.")] = 0,
    mirrored: Annotated[bool, typer.Option(help="With --images: mirror images are as likely.")] = True,
    device: Annotated[str, typer.Option(help="Where to compute: cpu, cuda, cuda:1, mps.")] = "cpu",
    output: FormatOption = Format.text,
) -> None:
    """Train a network to tell public images apart. An interrupted training goes on where it stopped.

    Whoever uses the backbone later must allow its digest, so keep the file: the same command gives the same digest
    on the same machine only.

        silosynth backbone pretrain --images PUBLIC/train --channels 3 --out own.safetensors
    """
    from silosynth.common.backbones import pretraining, save_backbone
    from silosynth.common.config import parse

    options = {"architecture": name, "channels": channels, "side": side, "steps": steps, "batch": batch, "seed": seed}
    plan = parse(pretraining.PretrainingPlan, options, "backbone pretrain")
    place = _device(device)
    source = _images(plan, procedural, images, mirrored, place)
    checkpoint = out.with_name(out.name + ".checkpoint")
    with _progress(plan.steps) as report:
        trained = pretraining.pretrain(plan, source, place, checkpoint, report)
    save_backbone(trained, out)
    checkpoint.unlink(missing_ok=True)
    _show(_facts(trained, side), output)


@app.command("import")
def import_weights(
    weights: Annotated[Path, typer.Argument(help="Weights trained elsewhere, .safetensors, named as in the network.")],
    out: Annotated[Path, typer.Option(help="The file to write, .safetensors.")],
    name: Annotated[str, typer.Option(help="The network they are of, such as wrn-22-8 or resnet18.")],
    channels: Annotated[int, typer.Option(help="1 for grey images, 3 for colour.")] = 3,
    classes: Annotated[int, typer.Option(min=1, help="What it was trained to tell apart.")] = 1000,
    mean: Annotated[float, typer.Option(help="Of pixels in [-1, 1]: it is taken off them.")] = 0.0,
    std: Annotated[float, typer.Option(help="Of pixels in [-1, 1]: they are divided by it.")] = 1.0,
    side: Annotated[int | None, typer.Option(help="Resize images to this side first.")] = None,
    output: FormatOption = Format.text,
) -> None:
    """Make a backbone of your own public weights. They must be public: what they know of records is not protected.

    From a PyTorch checkpoint: safetensors.torch.save_file(network.state_dict(), "weights.safetensors").
    """
    from silosynth.common.backbones import imported_backbone, save_backbone

    looks = {"mean": (mean,) * channels, "std": (std,) * channels, "side": side}
    made = imported_backbone(weights, {"architecture": name, "channels": channels, "classes": classes} | looks)
    save_backbone(made, out)
    _show(_facts(made, side or 32), output)


@app.command()
def inspect(
    source: Annotated[str, typer.Argument(help="A .safetensors file, or the name of a backbone.", metavar="FILE")],
    side: Annotated[int, typer.Option(min=1, help="Height and width of the images the taps are shown for.")] = 32,
    output: FormatOption = Format.text,
) -> None:
    """What a backbone is: its digest, layers and how it was trained. The file is checked like one from a server."""
    from silosynth.common.backbones import load_backbone

    _show(_facts(load_backbone(source), side), output)


def _images(
    plan: PretrainingPlan, procedural: bool, folder: Path | None, mirrored: bool, device: torch.device
) -> TrainingImages:
    from silosynth.common.backbones.training_images import FolderImages, ProceduralImages

    if procedural == (folder is not None):
        raise ConfigError("say what to train on: either --procedural or --images FOLDER")
    if folder is None:
        return ProceduralImages(plan.seed, plan.channels, plan.side, device)
    return FolderImages(folder, plan.seed, plan.channels, plan.side, device, mirrored)


def _device(name: str) -> torch.device:
    import torch

    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:  # torch built without it asserts
        raise ConfigError(f"there is no device {name!r} here: leave out --device to compute on the CPU") from error


@contextmanager
def _progress(steps: int) -> Iterator[Report]:
    """A bar on a terminal; in a log file a line now and then."""
    if not console.is_terminal:
        yield _in_lines(steps)
        return
    columns = (TextColumn("training"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[quality]}"))
    with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
        task = progress.add_task("", total=steps, quality="")

        def report(done: int, loss: float, accuracy: float) -> None:
            progress.update(task, completed=done, quality=f"loss {loss:.2f}, accuracy {accuracy:.0%}")

        yield report


def _in_lines(steps: int) -> Report:
    told = 0

    def report(done: int, loss: float, accuracy: float) -> None:
        nonlocal told
        if done * _LINES // steps > told:
            told = done * _LINES // steps
            console.print(f"{done} of {steps} steps, loss {loss:.2f}, accuracy {accuracy:.0%}", highlight=False)

    return report


def _facts(backbone: Backbone, side: int) -> dict[str, Any]:
    return {
        "architecture": backbone.blueprint.architecture,
        "digest": backbone.digest,
        "channels": backbone.blueprint.channels,
        "classes": backbone.blueprint.classes,
        "mean": backbone.blueprint.mean,
        "std": backbone.blueprint.std,
        "resized_to": backbone.blueprint.side,
        "parameters": sum(parameter.numel() for parameter in backbone.network.parameters()),
        "taps": backbone.tap_shapes(side, side),
        "taps_for_side": side,
        "recipe": dict(backbone.recipe),
    }


def _show(facts: dict[str, Any], output: Format) -> None:
    if output is Format.json:
        print(json.dumps(facts))
        return
    table = Table("what", Column("value", overflow="fold"), show_header=False)
    for name, value in facts.items():
        if name == "taps":
            value = ", ".join("x".join(map(str, shape)) for shape in value)
        elif name == "recipe":
            value = json.dumps(value, indent=1)  # the file's own words: escaped, they cannot steer a terminal
        table.add_row(name.replace("_", " "), escape(str(value)))
    console.print(table)
