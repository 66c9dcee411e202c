"""From events to epsilon and back. PLD is the reported figure, RDP the cross-check; both are dp_accounting's.

A server chooses the events a guard must account for, so every path here is bounded in time and memory, and
whatever is too odd for the exact figure gets a valid upper bound instead:

- all unsampled Gaussians compose to one Gaussian, whose epsilon is known in closed form;
- sampled Gaussians are accounted by privacy loss distributions (PLD) where these are affordable, else by RDP or as
  if they were not sampled, whichever is less;
- so many sampled compositions that rounding errors would add up are accounted as if they were not sampled;
- noise too small to protect anybody counts as none.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, reduce

import dp_accounting
import numpy as np
import numpy.typing as npt
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.rdp import RdpAccountant, compute_epsilon

from silosynth.common.errors import BudgetExhausted
from silosynth.common.events import Event, LabelResponse, SampledGaussian, merge, of_labels

_SMALLEST_NOISE = 1e-3  # epsilon is above 500,000: no protection
_LARGEST_NOISE = 1e7  # more noise is accounted as this much
_SMALLEST_RATE = 1e-12  # less sampling is accounted as this much
_LARGEST_SAMPLED_COUNT = 10**6
_CALIBRATION_TOLERANCE = 1e-3  # of epsilon, always below the target

# What a PLD may cost: within these limits, a second or two and some ten megabytes for each kind of event.
_SMALLEST_PLD_NOISE = 0.1
_SMALLEST_PLD_DELTA = 1e-10  # below, the rounding errors of its Fourier transforms begin to show
_LARGEST_PLD_MEAN = 100.0  # bound on the expected privacy loss; epsilon is larger still
_LARGEST_PLD_KINDS = 32
_LARGEST_PLD_POINTS = 50_000  # of one composition
_COARSEST_PLD_INTERVAL, _FINEST_PLD_INTERVAL = 1e-3, 1e-6

_ROUNDING_OF_RDP = 1e-14  # of one composition, so that double precision never makes an event free

# dp_accounting leaves out Renyi orders whose series does not converge, which is safe, and says so on stderr each time.
logging.getLogger("absl").addFilter(lambda record: "failed to converge" not in record.getMessage())


def epsilon(events: Iterable[Event], delta: float) -> float:
    """The smallest epsilon for which the composition of `events` is known to be (epsilon, delta)-DP.

    For neighbours that differ by a record, or by a label if all events are about labels; infinite if some are.
    """
    listed = list(events)
    return _pure_epsilon(listed) if of_labels(listed) else _epsilon(_compose(listed), delta)


def rdp_epsilon(events: Iterable[Event], delta: float) -> float:
    """The same by Renyi DP at dp_accounting's default orders: never smaller but for numerical slack."""
    listed = list(events)
    return _pure_epsilon(listed) if of_labels(listed) else _rdp_epsilon(_compose(listed), delta)


def _pure_epsilon(events: Iterable[Event]) -> float:
    """Pure guarantees add up."""
    return math.fsum(event.epsilon if isinstance(event, LabelResponse) else math.inf for event in events)


def calibrate(events_at: Callable[[float], Sequence[Event]], target_epsilon: float, delta: float) -> float:
    """A noise multiplier z for which `events_at(z)` costs at most `target_epsilon`, and hardly less.

    Of few digits: z is part of a query's identity, which must not depend on how a processor rounds.
    """
    if math.isinf(target_epsilon):
        return 0.0
    if target_epsilon <= 0:
        raise BudgetExhausted(f"no amount of noise fits a budget of epsilon = {target_epsilon:g}")

    def cost(log_noise: float) -> float:
        """Log of epsilon over the target, kept finite for interpolation."""
        ratio = epsilon(events_at(math.exp(log_noise)), delta) / target_epsilon
        return math.log(min(max(ratio, 1e-9), 1e9))

    return of_few_digits(math.exp(_root(cost, target_epsilon)))


def of_few_digits(noise_multiplier: float) -> float:
    """Smaller by a billionth at most, larger by a hundred-thousandth; whoever is asked is charged for what it is."""
    if noise_multiplier == 0:
        return 0.0
    digits = 6 - math.ceil(math.log10(noise_multiplier))
    return math.ceil(round(noise_multiplier * 10.0**digits, 3)) / 10.0**digits


def _root(cost: Callable[[float], float], target_epsilon: float) -> float:
    """The log noise at which `cost` is just below 0; `cost` falls roughly linearly, so interpolation is quick."""
    floor, ceiling = math.log(2 * _SMALLEST_NOISE), math.log(_LARGEST_NOISE)
    if cost(ceiling) > 0:
        raise BudgetExhausted(f"no reasonable noise fits what is left: epsilon = {target_epsilon:g}")
    low = high = 0.0
    while (high_cost := cost(high)) > 0:
        low, high = high, min(high + math.log(4), ceiling)
    while (low_cost := cost(low)) <= 0:
        if low == floor:
            return low
        low, high, high_cost = max(low - math.log(4), floor), low, low_cost
    aim, step = -_CALIBRATION_TOLERANCE / 2, 0
    while high_cost < 2 * aim and high - low > 1e-4:
        step += 1
        interpolated = (low_cost - aim) / (low_cost - high_cost)
        share = 0.5 if step % 3 == 0 else min(max(interpolated, 0.05), 0.95)  # halving, lest one end never moves
        guess = low + (high - low) * share
        if (guess_cost := cost(guess)) > 0:
            low, low_cost = guess, guess_cost
        else:
            high, high_cost = guess, guess_cost
    return high


@dataclass(frozen=True)
class _Composition:
    """Events in the form they are accounted in."""

    gaussian: float  # noise multiplier of the one Gaussian all unsampled events compose to; inf where there is none
    sampled: tuple[SampledGaussian, ...]


def _compose(events: Iterable[Event]) -> _Composition:
    merged = merge(_within_range(event) for event in events if isinstance(event, SampledGaussian))
    if any(event.noise_multiplier < _SMALLEST_NOISE for event in merged):
        return _Composition(0.0, ())
    sampled = tuple(event for event in merged if _counts_as_sampled(event))
    return _Composition(_gaussian_noise(event for event in merged if not _counts_as_sampled(event)), sampled)


def _counts_as_sampled(event: SampledGaussian) -> bool:
    return event.sampling_probability < 1 and event.count <= _LARGEST_SAMPLED_COUNT


def _gaussian_noise(events: Iterable[SampledGaussian]) -> float:
    """Of the one Gaussian that these compose to when none is sampled."""
    precision = math.fsum(e.count * (1 / e.noise_multiplier) ** 2 for e in events)
    return 1 / math.sqrt(precision) if precision else math.inf


def _within_range(event: SampledGaussian) -> SampledGaussian:
    """An event that costs no less, with numbers the accountants were made for."""
    if event.noise_multiplier <= _LARGEST_NOISE and event.sampling_probability >= _SMALLEST_RATE:
        return event
    noise_multiplier = min(event.noise_multiplier, _LARGEST_NOISE)
    sampling_probability = max(event.sampling_probability, _SMALLEST_RATE)
    return replace(event, noise_multiplier=noise_multiplier, sampling_probability=sampling_probability)


@lru_cache(maxsize=4096)
def _epsilon(composition: _Composition, delta: float) -> float:
    if not composition.sampled:
        return _unsampled_epsilon(composition, delta)
    if _pld_is_affordable(composition, delta):
        return _pld_epsilon(composition, delta)
    return min(_rdp_epsilon(composition, delta), _unsampled_epsilon(composition, delta))


def _unsampled_epsilon(composition: _Composition, delta: float) -> float:
    """Exact for Gaussians; an upper bound for sampled ones, as sampling never costs privacy."""
    noise = _gaussian_noise(_parts(composition)) if composition.gaussian else 0.0
    with np.errstate(divide="ignore"):  # its logarithm of a delta that underflows to 0
        return float(dp_accounting.get_epsilon_gaussian(noise, delta))


def _rdp_epsilon(composition: _Composition, delta: float) -> float:
    orders = RdpAccountant().orders
    divergences = orders / 2 * (1 / composition.gaussian) ** 2 if composition.gaussian else orders * math.inf
    for event in composition.sampled:
        divergences = divergences + event.count * _divergences_of_one(replace(event, count=1))
    return float(compute_epsilon(orders, divergences, delta)[0])


@lru_cache(maxsize=4096)
def _divergences_of_one(event: SampledGaussian) -> npt.NDArray[np.float64]:
    gaussian = dp_accounting.GaussianDpEvent(event.noise_multiplier)
    accountant = RdpAccountant().compose(dp_accounting.PoissonSampledDpEvent(event.sampling_probability, gaussian))
    return np.asarray(np.maximum(accountant.rdp, 0) + _ROUNDING_OF_RDP)


def _pld_is_affordable(composition: _Composition, delta: float) -> bool:
    """Never true again once false as events are added, so that epsilon only grows."""
    return (
        delta >= _SMALLEST_PLD_DELTA
        and len(composition.sampled) <= _LARGEST_PLD_KINDS
        and min(composition.gaussian, *(e.noise_multiplier for e in composition.sampled)) >= _SMALLEST_PLD_NOISE
        and sum(part.count * _mean_loss(part) for part in _parts(composition)) <= _LARGEST_PLD_MEAN
    )


def _pld_epsilon(composition: _Composition, delta: float) -> float:
    interval = _interval(composition)
    distributions = [_distribution(part, interval) for part in _parts(composition)]
    total = reduce(lambda left, right: left.compose(right), distributions)
    return max(0.0, float(total.get_epsilon_for_delta(delta)))


@lru_cache(maxsize=2 * _LARGEST_PLD_KINDS)
def _distribution(event: SampledGaussian, interval: float) -> pld.PrivacyLossDistribution:
    z, q = event.noise_multiplier, event.sampling_probability
    one = pld.from_gaussian_mechanism(z, sampling_prob=q, value_discretization_interval=interval)
    return one.self_compose(event.count)


def _parts(composition: _Composition) -> tuple[SampledGaussian, ...]:
    """Everything composed, as events."""
    gaussian = (SampledGaussian(composition.gaussian),) if math.isfinite(composition.gaussian) else ()
    return gaussian + composition.sampled


def _interval(composition: _Composition) -> float:
    """Discretization of the privacy loss, which rounds epsilon up: a power of two, so that distributions are reused.

    At a twentieth of the losses' root mean square epsilon is 0.02 % too large (measured).
    """
    parts = _parts(composition)
    mean_square = sum(part.count * _mean_square_loss(part) for part in parts) / sum(part.count for part in parts)
    wanted = min(max(math.sqrt(mean_square) / 20, _FINEST_PLD_INTERVAL), _COARSEST_PLD_INTERVAL)
    affordable = max(_largest_loss(part) for part in parts) / _LARGEST_PLD_POINTS
    return float(2.0 ** math.floor(math.log2(max(wanted, affordable))))


def _mean_loss(event: SampledGaussian) -> float:
    """Bound on the expected privacy loss: by convexity in the rate, and by the chi-square divergence."""
    z, q = event.noise_multiplier, event.sampling_probability
    return min(q / (2 * z * z), q * q * math.expm1(1 / (z * z)))


def _mean_square_loss(event: SampledGaussian) -> float:
    z, q = event.noise_multiplier, event.sampling_probability
    return min(q * (1 / (z * z) + 1 / (4 * z**4)), q * q * math.expm1(1 / (z * z)))


def _largest_loss(event: SampledGaussian) -> float:
    """Of outcomes within ten standard deviations, where dp_accounting cuts the distribution off."""
    z, q = event.noise_multiplier, event.sampling_probability
    return float(np.logaddexp(math.log1p(-q) if q < 1 else -math.inf, math.log(q) + (10 + 0.5 / z) / z))
