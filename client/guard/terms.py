"""The terms on which a dataset is shared: policy and budget. They tighten by themselves and loosen only on purpose."""

from __future__ import annotations

import math

from silosynth.client.config import BudgetSection, PolicySection, SiloConfig
from silosynth.common.config import Section

_STRICTEST_FIRST = ("deny", "ask", "auto")


class Terms(Section):
    policy: PolicySection
    budget: BudgetSection

    @classmethod
    def of(cls, config: SiloConfig) -> Terms:
        return cls(policy=config.policy, budget=config.budget)


def stricter(one: Terms, other: Terms) -> Terms:
    """Allows what both allow: the stricter of the two, field by field."""
    return Terms(policy=_stricter_policy(one.policy, other.policy), budget=_stricter_budget(one.budget, other.budget))


def _stricter_budget(one: BudgetSection, other: BudgetSection) -> BudgetSection:
    return BudgetSection(epsilon=min(one.epsilon, other.epsilon), delta=min(one.delta, other.delta))


def _stricter_policy(one: PolicySection, other: PolicySection) -> PolicySection:
    return PolicySection(
        consent=min(one.consent, other.consent, key=_STRICTEST_FIRST.index),
        mechanisms=tuple(name for name in one.mechanisms if name in other.mechanisms),
        backbones=tuple(name for name in one.backbones if name in other.backbones),
        public_inputs=one.public_inputs and other.public_inputs,
        max_epsilon_per_query=_lower(one.max_epsilon_per_query, other.max_epsilon_per_query),
        max_epsilon_per_period=_lower(one.max_epsilon_per_period, other.max_epsilon_per_period),
        period_days=_longer_period(one, other),
        max_values_per_release=min(one.max_values_per_release, other.max_values_per_release),
    )


def _lower(one: float | None, other: float | None) -> float | None:
    """None is no limit."""
    lower = min(math.inf if one is None else one, math.inf if other is None else other)
    return None if math.isinf(lower) else lower


def _longer_period(one: PolicySection, other: PolicySection) -> int:
    """A limit on more days is the stricter one; the days of a policy without such a limit say nothing."""
    limited = [policy.period_days for policy in (one, other) if policy.max_epsilon_per_period is not None]
    return max(limited, default=one.period_days)


def differences(before: Terms, after: Terms) -> list[str]:
    """What changes, a line for each setting."""
    lines = []
    for section in ("policy", "budget"):
        old, new = getattr(before, section), getattr(after, section)
        for name in type(old).model_fields:
            was, becomes = getattr(old, name), getattr(new, name)
            if was != becomes:
                lines.append(f"{section}.{name}: {_said(was)} -> {_said(becomes)}")
    return lines


def _said(value: object) -> str:
    if value is None:
        return "no limit"
    return ", ".join(value) or "none" if isinstance(value, tuple) else str(value)
