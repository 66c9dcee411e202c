"""From events to epsilon and back. PLD is the reported figure, RDP the cross-check."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

import dp_accounting
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

from silosynth.common.errors import BudgetExhausted
from silosynth.common.events import Event, merge

# Below this noise a discretized privacy loss distribution needs gigabytes; RDP is a valid, cheap upper bound.
_SMALLEST_PLD_NOISE = 0.1
_RDP_ORDERS = tuple(1 + x / 20 for x in range(1, 200)) + tuple(range(11, 257)) + (512, 1024, 2048, 4096)
_LARGEST_NOISE = 1e7


def epsilon(events: Iterable[Event], delta: float) -> float:
    """The smallest epsilon for which the composition of `events` is (epsilon, delta)-DP, by PLD."""
    return _pld_epsilon(merge(events), delta)


def rdp_epsilon(events: Iterable[Event], delta: float) -> float:
    """The same by Renyi DP: never smaller than `epsilon` but for numerical slack."""
    merged = merge(events)
    if not merged:
        return 0.0
    return _accounted(RdpAccountant(_RDP_ORDERS), merged, delta)


def calibrate(events_at: Callable[[float], Sequence[Event]], target_epsilon: float, delta: float) -> float:
    """The smallest noise multiplier z for which `events_at(z)` stays within (target_epsilon, delta)."""
    if math.isinf(target_epsilon):
        return 0.0
    if target_epsilon <= 0:
        raise BudgetExhausted(f"no amount of noise fits a budget of epsilon = {target_epsilon:g}")
    low, high = 0.0, 1.0
    while epsilon(events_at(high), delta) > target_epsilon:
        low, high = high, high * 2
        if high > _LARGEST_NOISE:
            raise BudgetExhausted(f"no reasonable noise fits what is left: epsilon = {target_epsilon:g}")
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if epsilon(events_at(middle), delta) <= target_epsilon else (middle, high)
    return high


@lru_cache(maxsize=4096)
def _pld_epsilon(merged: tuple[Event, ...], delta: float) -> float:
    if not merged:
        return 0.0
    if any(event.noise_multiplier == 0 for event in merged):
        return math.inf
    if _equivalent_noise(merged) < _SMALLEST_PLD_NOISE:
        return rdp_epsilon(merged, delta)
    return _accounted(PLDAccountant(), merged, delta)


def _equivalent_noise(merged: tuple[Event, ...]) -> float:
    """The smallest single noise among the events, unsampled Gaussians taken as the one they compose to."""
    unsampled = sum(e.count / e.noise_multiplier**2 for e in merged if e.sampling_probability == 1)
    noises = [e.noise_multiplier for e in merged if e.sampling_probability < 1]
    return min([*noises, 1 / math.sqrt(unsampled) if unsampled else math.inf])


def _accounted(accountant: dp_accounting.PrivacyAccountant, merged: tuple[Event, ...], delta: float) -> float:
    for event in merged:
        accountant.compose(_dp_event(event), event.count)
    return max(0.0, float(accountant.get_epsilon(delta)))


def _dp_event(event: Event) -> dp_accounting.DpEvent:
    """One composition, in dp_accounting's words."""
    if event.noise_multiplier == 0:
        return dp_accounting.NonPrivateDpEvent()
    gaussian = dp_accounting.GaussianDpEvent(event.noise_multiplier)
    if event.sampling_probability == 1:
        return gaussian
    return dp_accounting.PoissonSampledDpEvent(event.sampling_probability, gaussian)
