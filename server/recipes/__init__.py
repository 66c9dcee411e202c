"""One file per recipe; to add one is to add a line here."""

from silosynth.common.errors import ConfigError
from silosynth.server.recipes.base import Recipe
from silosynth.server.recipes.dosser import Dosser
from silosynth.server.recipes.dpgeng import DpGeng
from silosynth.server.recipes.evolution import EvolutionRecipe
from silosynth.server.recipes.feddpsd import FedDpsd
from silosynth.server.recipes.ldpdc import Ldpdc
from silosynth.server.recipes.merf import MerfRecipe
from silosynth.server.recipes.ndpdc import Ndpdc
from silosynth.server.recipes.prototypes import Prototypes
from silosynth.server.recipes.ridge import Ridge
from silosynth.server.recipes.sps import Sps

_ALL: tuple[Recipe, ...] = (
    Dosser(),
    DpGeng(),
    EvolutionRecipe(),
    FedDpsd(),
    Ldpdc(),
    MerfRecipe(),
    Ndpdc(),
    Prototypes(),
    Ridge(),
    Sps(),
)
RECIPES = {recipe.name: recipe for recipe in _ALL}


def recipe_named(name: str) -> Recipe:
    if name not in RECIPES:
        raise ConfigError(f"no recipe is called {name!r}: choose one of {', '.join(sorted(RECIPES))}")
    return RECIPES[name]


__all__ = ["RECIPES", "Recipe", "recipe_named"]
