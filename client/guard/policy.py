"""What the silo allows: pure functions of the query, the policy and the events spent so far."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from silosynth.client.config import BudgetSection, PolicySection
from silosynth.client.guard.decisions import Act
from silosynth.common import accounting
from silosynth.common.errors import BudgetExhausted, ConfigError, ConsentPending, PolicyDenied
from silosynth.common.events import Event, of_labels
from silosynth.common.queries import Query
from silosynth.common.queries.base import is_digest
from silosynth.common.shipped import backbone_name, shipped_backbones


def check_names(policy: PolicySection, known: Iterable[str]) -> None:
    """A misspelt name in the policy must not pass as one more thing denied."""
    unknown = sorted(set(policy.mechanisms) - set(known))
    if unknown:
        raise ConfigError(f"policy.mechanisms: unknown {', '.join(unknown)}; known are {', '.join(sorted(known))}")
    shipped = shipped_backbones()
    unknown = [name for name in policy.backbones if name not in shipped and not is_digest(name)]
    if unknown:
        raise ConfigError(
            f"policy.backbones: unknown {', '.join(unknown)}; shipped are {', '.join(shipped) or 'none'}, any other is "
            "named by the SHA-256 digest of its file"
        )


def check_policy(query: Query, policy: PolicySection, delta: float) -> None:
    """Raise PolicyDenied unless the silo allows such a query, whatever is left of the budget."""
    if policy.consent == "deny":
        raise PolicyDenied('this silo answers no queries: its policy.consent is "deny"')
    if query.mechanism not in policy.mechanisms:
        raise PolicyDenied(f"this silo does not allow the mechanism {query.mechanism}: see its policy.mechanisms")
    if of_labels([query.event()]) and not policy.public_inputs:
        raise PolicyDenied(
            "the query protects labels only: people of this silo to whom all else about its records is public allow it "
            "with the line public_inputs = true under [policy] in silo.toml, then `silosynth silo adopt`"
        )
    _check_backbones(query, policy)
    size = query.layout().size
    if size > policy.max_values_per_release:
        raise PolicyDenied(f"a release of {size} values is larger than this silo's {policy.max_values_per_release}")
    if policy.max_epsilon_per_query is not None:
        epsilon = accounting.epsilon([query.event()], delta)
        if epsilon > policy.max_epsilon_per_query:
            raise PolicyDenied(
                f"the query alone costs epsilon = {epsilon:.4g}, above this silo's limit for one query of "
                f"{policy.max_epsilon_per_query:g}: ask with more noise"
            )


def _check_backbones(query: Query, policy: PolicySection) -> None:
    shipped = shipped_backbones() if query.backbones() else {}
    allowed = {shipped.get(name, name) for name in policy.backbones}
    for digest in query.backbones():
        if digest not in allowed:
            raise PolicyDenied(
                f"this silo does not allow the backbone {digest}: its people allow it with the line "
                f'backbones = [..., "{backbone_name(digest)}"] under [policy] in silo.toml, then `silosynth silo adopt`'
            )


def check_period(due: Event, spent_in_period: Sequence[Event], policy: PolicySection, delta: float) -> None:
    """Raise PolicyDenied unless what was spent in the running period and what is due stay within its limit."""
    if policy.max_epsilon_per_period is None:
        return
    requested = accounting.epsilon([*spent_in_period, due], delta)
    if requested > policy.max_epsilon_per_period:
        raise PolicyDenied(
            f"with this query the silo would have spent epsilon = {requested:.4g} within {policy.period_days} days, "
            f"above its limit of {policy.max_epsilon_per_period:g}: ask later or with more noise; nothing was charged"
        )


def check_consent(query_digest: str, verdict: Act | None) -> None:
    """Raise unless the silo's people have allowed exactly this query: no answer yet is not the same as a no."""
    if verdict is None:
        raise ConsentPending(
            f"query {query_digest} waits for this silo's consent: its people decide with "
            f"`silosynth silo approve {query_digest}` or `silosynth silo deny`; nothing was charged"
        )
    if verdict.verdict == "denied":
        raise PolicyDenied(f"this silo's people have denied query {query_digest}")


def check_budget(due: Event, spent: Sequence[Event], budget: BudgetSection) -> None:
    """Raise BudgetExhausted unless all that was spent and what is due together stay within the budget."""
    if spent and of_labels([due]) != of_labels(spent):
        raise PolicyDenied(
            "what protects records and what protects labels only do not add up to one epsilon: a dataset whose ledger "
            "holds the one cannot serve the other. Name another dataset under [silo] in silo.toml; nothing was charged"
        )
    requested = accounting.epsilon([*spent, due], budget.delta)
    if requested > budget.epsilon:
        already = accounting.epsilon(spent, budget.delta)
        raise BudgetExhausted(
            f"requested: with this query the silo would have spent epsilon = {requested:.4g} of {budget.epsilon:g} "
            f"(delta = {budget.delta:g}); remaining: {max(0.0, budget.epsilon - already):.4g}, for which "
            f"{_what_fits(due, spent, budget)}; nothing was charged"
        )


def _what_fits(due: Event, spent: Sequence[Event], budget: BudgetSection) -> str:
    def events_at(noise_multiplier: float) -> list[Event]:
        return [*spent, replace(due, noise_multiplier=noise_multiplier)]

    try:
        enough = accounting.calibrate(events_at, budget.epsilon, budget.delta)
    except BudgetExhausted:
        return "no noise multiplier would make it fit"
    rounded_up = enough * 1.0006
    return f"a noise multiplier of {rounded_up:.4g} instead of {due.noise_multiplier:.4g} would fit"
