"""`silosynth evaluate`: what is a finished dataset worth?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from silosynth.common.errors import ConfigError
from silosynth.deploy.formats import Format, FormatOption
from silosynth.deploy.progress import share_done
from silosynth.deploy.release_commands import PlaceArgument, ShelfOption, release_folder

console = Console(stderr=True)


def _print_schema(wanted: bool) -> None:
    if wanted:
        from silosynth.server.evaluation.report import Evaluation

        print(json.dumps(Evaluation.model_json_schema()))
        raise typer.Exit


SchemaOption = Annotated[
    bool,
    typer.Option("--schema", help="Print the JSON Schema of evaluation.json.", callback=_print_schema, is_eager=True),
]


def evaluate(
    release: PlaceArgument,
    test: Annotated[
        str, typer.Option(help="Public test records: digits, a file, a folder, or a TOML file that tells.")
    ],
    split: Annotated[str | None, typer.Option(help="Which part, where a source holds two: test if not said.")] = None,
    classes: Annotated[
        int | None, typer.Option(min=1, help="Of the test records, where their files do not say.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="How many models of each kind to train.")] = 3,
    model: Annotated[str, typer.Option(help="The headline's: auto, linear, mlp, convnet-128, backbone...")] = "auto",
    architecture: Annotated[list[str] | None, typer.Option(help="A further model to train; may be repeated.")] = None,
    protocol: Annotated[str, typer.Option(help="How models are trained: quick, family, family-short, sps.")] = "quick",
    out: Annotated[Path | None, typer.Option(help="The folder to write; NAME-VERSION-evaluation if not said.")] = None,
    shelf: ShelfOption = None,
    output: FormatOption = Format.text,
    schema: SchemaOption = False,
) -> None:
    """Train fresh models on a finished dataset and test them on public records. It costs no privacy.

    Several seeds with their interval, other architectures, ensembles, the worst class, calibration, and how much the
    synthetic records are like the public ones (distance, coverage, variety) in a public network's eyes:

        silosynth evaluate demo/1 --test digits --architecture mlp --architecture linear

    The release is verified first and stays as it was signed: evaluation.json and its picture (PNG and SVG) are written
    to a folder of their own. Public records only: for a silo's own there is `silosynth silo evaluate`.
    """
    from silosynth.deploy.evaluations import Order, evaluate_release, score_table

    folder = release_folder(release, shelf)
    target = out or Path(f"{'-'.join(folder.absolute().parts[-2:])}-evaluation")
    if target.absolute().is_relative_to(folder.absolute()):
        raise ConfigError(
            f"{target} lies in the release, which would no longer be as it was signed: choose another --out"
        )
    order = Order(test, split, classes, seeds, model, tuple(architecture or ()), protocol)
    with share_done(console, "training models") as report:
        evaluation = evaluate_release(folder, order, target, report)
    if output is Format.json:
        print(evaluation.model_dump_json())
    else:
        console.print(score_table(evaluation))
        console.print(f"Written: {target / 'evaluation.json'}, and its picture as .png and .svg", soft_wrap=True)
