"""What the next run would cost: `silosynth plan` as a form. Nobody is asked, no data is read, nothing is spent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from silosynth.common.errors import ConfigError, SilosynthError
from silosynth.common.schema import Schema
from silosynth.server.dashboard.sources import Run, Sources
from silosynth.server.dashboard.tags import Public, View

_MOST = 10_000_000


@dataclass(frozen=True)
class Wish:
    """What the form says."""

    recipe: str
    epsilon: float
    delta: float
    silos: int
    records: int
    classes: int
    shape: str

    @classmethod
    def of(cls, sent: Mapping[str, str]) -> Wish | None:
        """None if the form was not sent; what is no number counts as 0, which the plan complains about."""
        if "recipe" not in sent:
            return None
        numbers = {name: _number(sent.get(name, "")) for name in ("epsilon", "delta", "silos", "records", "classes")}
        whole = {name: int(numbers[name]) for name in ("silos", "records", "classes")}
        return cls(sent["recipe"], numbers["epsilon"], numbers["delta"], shape=sent.get("shape", ""), **whole)


@dataclass(frozen=True)
class PlanForm(View):
    recipes: Public[tuple[str, ...]]  # as far as they are known yet
    recipe: Public[str]
    epsilon: Public[float]
    delta: Public[float]
    silos: Public[int]
    records: Public[int]
    classes: Public[int]
    shape: Public[str]
    from_run: Public[int | None]  # whose settings it is filled in with


@dataclass(frozen=True)
class Change(View):
    words: Public[str]
    noise: Public[float]
    verdict: Public[str]


@dataclass(frozen=True)
class PlanResult(View):
    problem: Public[str]
    epsilon: Public[float] = 0.0
    noise_multiplier: Public[float] = 0.0
    queries: Public[int] = 0
    bytes: Public[int] = 0
    noise: Public[float] = 0.0
    bearable: Public[float] = 0.0
    verdict: Public[str] = ""
    changes: tuple[Change, ...] = ()
    command: Public[str] = ""


def plan_form(sources: Sources, runs: list[Run], wish: Wish | None) -> PlanForm:
    """Filled in with what was asked, else with the last run's settings."""
    said = wish or (_like(runs[0]) if runs else Wish("prototypes", 2.0, 1e-5, 3, 1000, 10, "28x28x1"))
    known = sources.reckoning.ask("recipes", _recipe_names) or (said.recipe,)
    return PlanForm(known, **vars(said), from_run=runs[0].number if runs and wish is None else None)


def _recipe_names() -> tuple[str, ...]:
    from silosynth.server.recipes import RECIPES  # brings torch along, which takes seconds

    return tuple(sorted(RECIPES))


def _like(run: Run) -> Wish:
    """How many records a silo has is nobody's business: a round number to start from."""
    config = run.config
    shape = "x".join(map(str, config.records.shape))
    silos, classes = len(config.federation.silos), config.records.classes
    return Wish(config.recipe, config.privacy.epsilon, config.privacy.delta, silos, 1000, classes, shape)


@lru_cache(maxsize=64)
def planned(wish: Wish) -> PlanResult:
    try:
        return _planned(wish)
    except SilosynthError as error:
        return PlanResult(problem=str(error))


def _planned(wish: Wish) -> PlanResult:
    from silosynth.server.planning import Proposal, Verdict, costs, what_if  # these bring torch along
    from silosynth.server.recipes import recipe_named
    from silosynth.server.recipes.base import Task
    from silosynth.server.recipes.outlook import Crowd

    _require_sense(wish)
    recipe = recipe_named(wish.recipe)
    schema = Schema(tuple(int(side) for side in wish.shape.split("x")), wish.classes)
    task = Task(schema, wish.epsilon, wish.delta)
    proposal = Proposal(recipe, task, recipe.parameters(), Crowd(wish.silos, wish.records))
    outlook = proposal.outlook()
    cost = costs(proposal, outlook)
    return PlanResult(
        problem="",
        epsilon=cost.epsilon,
        noise_multiplier=cost.noise_multiplier,
        queries=cost.queries,
        bytes=cost.upload_bytes,
        noise=outlook.noise_to_signal,
        bearable=outlook.bearable,
        verdict=Verdict.of(outlook).value,
        changes=tuple(
            Change(words, changed.noise_to_signal, Verdict.of(changed).value)
            for words, changed in what_if(proposal, outlook)
        ),
        command=f"silosynth plan --recipe {wish.recipe} --epsilon {wish.epsilon:g} --delta {wish.delta:g} "
        f"--silos {wish.silos} --records {wish.records} --classes {wish.classes} --shape {wish.shape}",
    )


def _number(text: str) -> float:
    try:
        return min(max(float(text), 0.0), 1e12)
    except ValueError:
        return 0.0


def _require_sense(wish: Wish) -> None:
    sides = wish.shape.split("x")
    sound = {
        "shape: write 28x28x1 for an image, 14 for a row": all(s.isascii() and s.isdecimal() for s in sides),
        "epsilon: a number between 0.001 and 100": 0.001 <= wish.epsilon <= 100,
        "delta: a number between 0 and 1": 0 < wish.delta < 1,
        "silos, records and classes: whole numbers from 1 on": min(wish.silos, wish.records, wish.classes) >= 1
        and max(wish.silos, wish.records, wish.classes) <= _MOST,
    }
    for words, holds in sound.items():
        if not holds:
            raise ConfigError(words)
    values = 1
    for side in sides:
        values *= int(side)
    if not 1 <= values * wish.classes <= _MOST:
        raise ConfigError("shape and classes: records this large are not planned here; use `silosynth plan`")
