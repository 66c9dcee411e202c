"""`silosynth plan`: what would this run cost, and is there enough data?"""

from __future__ import annotations

import json
import math
import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from silosynth.common.errors import ConfigError, NotEnoughData
from silosynth.deploy.formats import Format, FormatOption

console = Console(stderr=True)


def plan(
    records: Annotated[int, typer.Option(min=1, help="Records of each silo: your guess. No data is looked at.")],
    config: Annotated[Path | None, typer.Argument(help="A run.toml, unless options say it all.")] = None,
    recipe: Annotated[str | None, typer.Option(help="How to synthesize.")] = None,
    epsilon: Annotated[float | None, typer.Option(min=0.001, help="What each silo is asked to spend.")] = None,
    delta: Annotated[
        float | None, typer.Option(min=0, max=1, help="Probability with which epsilon may not hold: 1e-5 if not said.")
    ] = None,
    silos: Annotated[int | None, typer.Option(min=1, help="How many silos answer.")] = None,
    classes: Annotated[int | None, typer.Option(min=1, help="How many classes the records have.")] = None,
    shape: Annotated[str | None, typer.Option(help="Of a record: 28x28x1 for an image, 14 for a row.")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="A parameter of the recipe: steps=500.")] = None,
    output: FormatOption = Format.text,
) -> None:
    """What would this run cost, and is there enough data? Nobody is asked, no data is read, nothing is spent.

    Costs: noise, epsilon by privacy loss distributions (and by Renyi DP, as a check), what each silo sends.
    Enough: the noise in what the recipe learns of a class, over the most that can be learned, beside what the recipe
    was measured to bear; and how it falls with more of anything. Five silos of some 12,000 images each:

        silosynth plan --recipe sps --epsilon 1 --silos 5 --records 12000 --classes 10 --shape 28x28x1

        silosynth plan run.toml --records 12000 --epsilon 2

    Where both speak, options win over run.toml. Ends with 5 where the recipe asks for more data than there is, so
    that a script can stop there.
    """
    from silosynth.deploy import plans

    sides = None if shape is None else _shape(shape)
    said = {"recipe": recipe, "epsilon": epsilon, "delta": delta, "silos": silos, "classes": classes, "shape": sides}
    options = {name: value for name, value in said.items() if value is not None}
    proposal = plans.proposal(config, records, options, dict(map(setting, settings or ())))
    document = plans.document(proposal)
    if output is Format.json:
        print(json.dumps(_finite(document)))
    else:
        console.print(*plans.tables(document))
    advice = document["advice"]
    if advice["verdict"] == plans.TOO_LITTLE:
        raise NotEnoughData(advice["words"])
    console.print(advice["words"], soft_wrap=True, highlight=False)


def _shape(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(side) for side in text.split("x"))
    except ValueError as error:
        raise ConfigError(f"--shape {text}: write 28x28x1 for an image, 14 for a row") from error


def setting(text: str) -> tuple[str, Any]:
    """As in run.toml, but for quotes around words."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"--set {text}: write NAME=VALUE, such as steps=500")
    try:
        return name, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return name, value


def _finite(value: Any) -> Any:
    """JSON has no infinity."""
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
