"""Private Evolution as a recipe of its own: public images that the silos' records voted for, and variations of them.

Where nobody can train a generator but somebody has one, or a folder of images; and a generator of `dpgeng`.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from silosynth.common.config import Section
from silosynth.server.generators.evolution import Evolution, EvolutionParameters
from silosynth.server.recipes.pool_recipe import PoolRecipe


class Parameters(EvolutionParameters):
    records_per_class: int = Field(100, ge=1, le=1_000_000)


class EvolutionRecipe(PoolRecipe):
    name = "evolution"
    parameters: type[Section] = Parameters
    levers: tuple[dict[str, Any], ...] = ({"candidates": 50}, {"evolution_steps": 5})
    post_processing = (
        "Public images, and variations of them, live on as noisy counts tell how many of the silos' records are "
        "nearest to each; the synthetic records are those that lived to the end. No real record was ever copied."
    )

    def generator(self, parameters: Parameters) -> Evolution:
        return Evolution(parameters)
