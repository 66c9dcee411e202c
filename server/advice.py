"""A plan in plain words: whether there is enough data for a run and, if not, what would help."""

from __future__ import annotations

from dataclasses import dataclass

from silosynth.server.planning import (
    LARGEST_EPSILON,
    Proposal,
    Verdict,
    alternatives,
    epsilon_needed,
    records_needed,
)
from silosynth.server.recipes.outlook import Outlook


@dataclass(frozen=True)
class Advice:
    verdict: Verdict
    words: str
    records_needed: int
    """Of each silo."""
    epsilon_needed: float | None
    alternatives: list[str]


def advise(proposal: Proposal, outlook: Outlook) -> Advice:
    """Other ways are looked for only where they are needed: each takes some seconds of accounting."""
    verdict, records = Verdict.of(outlook), records_needed(proposal, outlook)
    if verdict is not Verdict.too_little:
        return Advice(verdict, _good_words(proposal, outlook, verdict), records, proposal.task.epsilon, [])
    budget, others = epsilon_needed(proposal), alternatives(proposal)
    return Advice(verdict, _bad_words(proposal, outlook, budget, others), records, budget, others)


def _good_words(proposal: Proposal, outlook: Outlook, verdict: Verdict) -> str:
    words = f"{verdict.value}: {_noise_in_words(proposal, outlook)}"
    if verdict is Verdict.scarce:
        return f"{words}; expect to lose a tenth to a half of what {proposal.recipe.name} learns without noise"
    return words


def _bad_words(proposal: Proposal, outlook: Outlook, budget: float | None, others: list[str]) -> str:
    ways = [f"use {others[0]}"] if others else []
    if outlook.records_help:
        ways.append(f"have at least {records_needed(proposal, outlook)} records a silo")
    ways.append(f"spend epsilon {budget:.2g}" if budget else f"no epsilon up to {LARGEST_EPSILON:g} is enough")
    return (
        f"{proposal.recipe.name} asks for more data than there is: {_noise_in_words(proposal, outlook)}, and it bears "
        f"{outlook.bearable:.2g} times; {', or '.join(ways)}"
    )


def _noise_in_words(proposal: Proposal, outlook: Outlook) -> str:
    crowd, task = proposal.crowd, proposal.task
    silos = "one silo" if crowd.silos == 1 else f"{crowd.silos} silos"
    return (
        f"at epsilon {task.epsilon:g} with {silos} of {crowd.records} records the noise is "
        f"{outlook.noise_to_signal:.2g} times what can be learned of a class"
    )
