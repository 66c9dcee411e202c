"""What both `silosynth demo` and `silosynth sim up` can be told."""

from __future__ import annotations

from typing import Annotated

import typer

RecipeOption = Annotated[str, typer.Option(help="How to synthesize: see the README for the recipes' names.")]
EpsilonOption = Annotated[float, typer.Option(min=0.01, help="What each silo is asked to spend.")]
BudgetOption = Annotated[float, typer.Option(min=0.01, help="What each silo's ledger allows in total.")]
DeltaOption = Annotated[float, typer.Option(min=0, max=1, help="Probability with which epsilon may not hold.")]
PartitionOption = Annotated[str, typer.Option(help="How records are dealt: iid, dirichlet:0.5, classes, powerlaw:1.5.")]
SeedOption = Annotated[int, typer.Option(help="Seed of public randomness; never of privacy noise.")]
