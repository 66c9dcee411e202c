"""`silosynth attack`: what would an attacker learn of single records?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from silosynth.deploy.formats import Format, FormatOption
from silosynth.deploy.plan_commands import setting
from silosynth.deploy.progress import share_done

console = Console(stderr=True)


def attack(
    data: Annotated[
        str, typer.Option(help="Records to simulate silos with: digits, a file or a folder, or a TOML file that tells.")
    ],
    recipe: Annotated[str, typer.Option(help="How to synthesize: see the README for the recipes' names.")] = "ldpdc",
    settings: Annotated[list[str] | None, typer.Option("--set", help="A parameter of the recipe: steps=500.")] = None,
    classes: Annotated[int | None, typer.Option(min=1, help="Of the records, where their files do not say.")] = None,
    epsilon: Annotated[float, typer.Option(min=0.01, help="What each silo spends; inf: no noise at all.")] = 1.0,
    delta: Annotated[float, typer.Option(min=0, max=1, help="Probability with which epsilon may not hold.")] = 1e-5,
    silos: Annotated[int, typer.Option(min=1, max=50, help="How many silos hold the records.")] = 5,
    partition: Annotated[str, typer.Option(help="iid, dirichlet:0.5, classes, powerlaw:1.5.")] = "iid",
    runs: Annotated[int, typer.Option(min=4, help="Shadow runs of the whole recipe.")] = 16,
    steps: Annotated[int, typer.Option(min=1, help="Training steps of the models that are attacked.")] = 100,
    records: Annotated[int, typer.Option(min=20, help="How many records, at most, get a coin in every run.")] = 2000,
    seed: Annotated[int, typer.Option(min=0, help="Of coins and recipe; never of privacy noise.")] = 0,
    out: Annotated[Path, typer.Option(help="The folder to write.")] = Path("silosynth-attacks"),
    output: FormatOption = Format.text,
) -> None:
    """Attack a recipe in a simulation on records of your own choice: nothing of a real federation is touched.

    In every run a coin decides for each record whether it takes part. Then:
    a model trained on the release is asked who did, by comparison with the other runs (LiRA);
    synthetic records alone are asked (density against public records, and nearest neighbours);
    and each kind of query is audited with canaries, for a lower bound on the epsilon it really has.
    Records of a table, or others that need explaining, are told of by a TOML file with a data table, as in silo.toml.

        silosynth attack --data digits --recipe prototypes --epsilon 1 --runs 16

    Writes attacks.json and its ROC curves (PNG and SVG). Ends with 30 if an attack refutes the claimed epsilon.
    """
    from silosynth.deploy.attacks.campaign import Campaign, wage
    from silosynth.deploy.attacks.results import as_tables, write_report
    from silosynth.deploy.parts import held_and_public

    chosen = dict(map(setting, settings or ()))
    campaign = Campaign(data, recipe, chosen, epsilon, delta, silos, partition, runs, seed, steps, records)
    held, public = held_and_public(data, classes)
    with share_done(console, f"{runs} runs of {recipe}") as report:
        found = wage(campaign, held, public, report)
    write_report(found, out)
    if output is Format.json:
        print(found.model_dump_json())
    else:
        console.print(*as_tables(found))
        console.print(f"Written: {out / 'attacks.json'}, and its curves as .png and .svg", soft_wrap=True)
    found.verdict()
