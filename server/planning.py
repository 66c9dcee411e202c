"""What a run would cost and whether there is enough data for it: from public numbers, before anybody is asked."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum

from silosynth.common.accounting import epsilon, rdp_epsilon
from silosynth.common.config import Section, parse
from silosynth.common.errors import SilosynthError
from silosynth.common.events import Event, merge
from silosynth.common.queries import Query, charges_of
from silosynth.server.config import EvaluationSettings
from silosynth.server.evaluation import score_query
from silosynth.server.evaluation.baselines import queries_of
from silosynth.server.recipes import RECIPES
from silosynth.server.recipes.base import Recipe, Task
from silosynth.server.recipes.outlook import Crowd, Outlook

LARGEST_EPSILON = 32.0  # more is no advice
_COMFORTABLE = 0.5  # of the bearable noise: nine tenths of what is learned without noise, or more (measured)
_BYTES_BESIDE_VALUES = 300  # of a sealed release: receipt and signature
_EXTREME_DEVIATIONS = 6.0


class Verdict(StrEnum):
    enough = "enough data"
    scarce = "scarce data"
    too_little = "too little data"

    @classmethod
    def of(cls, outlook: Outlook) -> Verdict:
        if outlook.strain > 1:
            return cls.too_little
        return cls.scarce if outlook.strain > _COMFORTABLE else cls.enough


@dataclass(frozen=True)
class Proposal:
    """A run that somebody thinks of."""

    recipe: Recipe
    task: Task
    parameters: Section
    crowd: Crowd
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)
    """What it asks of silos is paid beside the task's epsilon."""

    def outlook(self) -> Outlook:
        return self.recipe.outlook(self.task, self.parameters, self.crowd)


@dataclass(frozen=True)
class Costs:
    """What each silo would pay and send."""

    noise_multiplier: float
    events: tuple[Event, ...]
    epsilon: float
    rdp_epsilon: float
    queries: int
    values: int
    upload_bytes: int


def costs(proposal: Proposal, outlook: Outlook) -> Costs:
    queries, delta = [*outlook.queries, *_baselines(proposal), *_scores(proposal)], proposal.task.delta
    events = merge(charges_of(queries))
    return Costs(
        noise_multiplier=min(query.noise_multiplier for query in queries),
        events=events,
        epsilon=epsilon(events, delta),
        rdp_epsilon=rdp_epsilon(events, delta),
        queries=len(queries),
        values=sum(query.layout().size for query in queries),
        upload_bytes=sum(_bytes(query, proposal.crowd.records) for query in queries),
    )


def _scores(proposal: Proposal) -> list[Query]:
    """The model is not known before the records are made; it has no part in the cost."""
    task = proposal.task
    if proposal.evaluation.silo_epsilon is None:
        return []
    return [score_query(task.schema, "0" * 64, proposal.evaluation.silo_epsilon, task.delta)]


def _baselines(proposal: Proposal) -> list[Query]:
    task, settings = proposal.task, proposal.evaluation
    return [query for name in settings.baselines for query in queries_of(name, task, proposal.crowd)]


def what_if(proposal: Proposal, outlook: Outlook) -> Iterator[tuple[str, Outlook]]:
    """How the noise falls with more of anything, and with other settings of the recipe."""
    task, crowd = proposal.task, proposal.crowd
    for factor in (2, 4):
        budget = task.epsilon * factor
        yield f"epsilon {budget:g}", replace(proposal, task=replace(task, epsilon=budget)).outlook()
    if outlook.records_help:
        more = replace(crowd, records=4 * crowd.records)
        yield f"{more.records} records a silo", replace(proposal, crowd=more).outlook()
    more = replace(crowd, silos=4 * crowd.silos)
    yield f"{more.silos} silos of {more.records} records", replace(proposal, crowd=more).outlook()
    for lever in proposal.recipe.levers:
        chosen = parse(type(proposal.parameters), proposal.parameters.model_dump() | lever, "lever")
        pulled = replace(proposal, parameters=chosen).outlook()
        if pulled.noise_to_signal < outlook.noise_to_signal:
            yield ", ".join(f"{name} = {value}" for name, value in lever.items()), pulled


def records_needed(proposal: Proposal, outlook: Outlook) -> int:
    """Of each silo, for bearable noise: it falls with the number of records."""
    return math.ceil(proposal.crowd.records * outlook.strain)


def epsilon_needed(proposal: Proposal) -> float | None:
    """The smallest epsilon, to two digits or so, at which the noise is bearable; None if that is no advice."""
    low, high = proposal.task.epsilon, LARGEST_EPSILON
    if low >= high or not _bearable_at(proposal, high):
        return None
    while high > 1.05 * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if _bearable_at(proposal, middle) else (middle, high)
    return high


def alternatives(proposal: Proposal) -> list[str]:
    """Other recipes, as they come, for which the same data is enough; the least strained first."""
    strains = {name: _strain(replace(proposal, recipe=recipe)) for name, recipe in RECIPES.items()}
    fitting = {name: strain for name, strain in strains.items() if strain <= 1 and name != proposal.recipe.name}
    return sorted(fitting, key=lambda name: fitting[name])


def _strain(proposal: Proposal) -> float:
    try:
        return replace(proposal, parameters=proposal.recipe.parameters()).outlook().strain
    except SilosynthError:  # this recipe is not made for such records
        return math.inf


def _bearable_at(proposal: Proposal, budget: float) -> bool:
    return replace(proposal, task=replace(proposal.task, epsilon=budget)).outlook().strain <= 1


def _bytes(query: Query, records: int) -> int:
    """Values travel in four bytes each where all of them fit."""
    plan = query.plan()
    largest = (_EXTREME_DEVIATIONS * plan.noise_std + records * plan.sensitivity) / plan.grid
    return plan.layout.size * (4 if largest < 1 << 31 else 8) + _BYTES_BESIDE_VALUES
