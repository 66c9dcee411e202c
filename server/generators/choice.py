"""Which generator a recipe works with, and how: a table `generator` among its parameters."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from silosynth.server.generators.evolution import Evolution, EvolutionParameters
from silosynth.server.generators.merf import Merf, MerfParameters


class MerfChoice(MerfParameters):
    method: Literal["merf"] = "merf"

    def opened(self) -> Merf:
        return Merf(self)


class EvolutionChoice(EvolutionParameters):
    method: Literal["evolution"] = "evolution"

    def opened(self) -> Evolution:
        return Evolution(self)


GeneratorChoice: TypeAlias = Annotated[MerfChoice | EvolutionChoice, Field(discriminator="method")]
