"""DP-MERF as a recipe of its own: one upload of noisy mean embeddings, a generator that has them, its records.

A baseline that every distillation should beat, and a generator of `dpgeng`.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from silosynth.common.config import Section
from silosynth.server.generators.merf import Merf, MerfParameters
from silosynth.server.recipes.pool_recipe import PoolRecipe


class Parameters(MerfParameters):
    records_per_class: int = Field(100, ge=1, le=1_000_000)


class MerfRecipe(PoolRecipe):
    name = "merf"
    parameters: type[Section] = Parameters
    levers: tuple[dict[str, Any], ...] = ({"features": 500},)
    post_processing = (
        "A generator learns from a public seed to make records whose features are, on average over a class, the silos' "
        "noisy mean features; the synthetic records are drawn from it, and it has never seen a record."
    )

    def generator(self, parameters: Parameters) -> Merf:
        return Merf(parameters)
