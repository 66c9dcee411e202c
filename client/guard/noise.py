"""Privacy noise: Gaussian noise rounded to integers, drawn exactly.

Why integers: for an integer k, k + round(g) = round(k + g), so a release is the continuous Gaussian mechanism
followed by rounding. Rounding is post-processing, hence the accounting of the continuous mechanism applies as it is.
Noise in floating point has no such argument: a sum k + g can only take the values that some representable g leads to,
these differ between neighbouring inputs, and at sigma = 1 about 43 % of the outputs give the input away.

Why exactly: the argument needs the true distribution, tails and all. A random word stands for an interval of tail
probabilities, so for an interval of Gaussian values. Nearly always that interval lies inside one rounding cell, with
room for the errors of double precision, and the cell is the draw. Otherwise more random bits are drawn and compared
with the exact boundary in multiple precision until the cell is certain.
"""

from __future__ import annotations

import math

import mpmath
import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from silosynth.client.guard.entropy import Entropy, coin_flips
from silosynth.common.errors import DataError, QueryError
from silosynth.common.queries.base import LARGEST_NOISE_STEPS, Plan, Response

Integers = npt.NDArray[np.int64]

_CHUNK = 1 << 20
_LARGEST_VALUE = 1 << 62
_MAGNITUDE = np.uint64((1 << 63) - 1)  # a word is a sign and 63 bits of a tail probability below 1/2
_NDTRI_ERROR = 1e-14  # of z, relative to 1 + |z|; measured: 4e-16
_COMPARISON_ERROR = 2.0**-32  # of a tail probability with 64 guard bits, in units of the last bit drawn


def add_noise(values: Integers, plan: Plan, entropy: Entropy) -> Integers:
    """The private integers of a release, in units of the plan's grid."""
    if values.dtype != np.int64 or values.shape != (plan.layout.size,):
        raise ValueError(f"expected {plan.layout.size} int64 values, got {values.dtype} of shape {values.shape}")
    if plan.response is not None:
        return randomized_response(values.reshape(-1, plan.response.choices), plan.response, entropy).reshape(-1)
    noise = rounded_gaussian(plan.noise_std / plan.grid, values.size, entropy)
    if any(part.min(initial=0) < -_LARGEST_VALUE or part.max(initial=0) > _LARGEST_VALUE for part in (values, noise)):
        raise DataError("the sums of these records do not fit 64-bit integers: ask for a coarser statistic")
    return values + noise


def randomized_response(named: Integers, response: Response, entropy: Entropy) -> Integers:
    """For each row, which names one choice or none, a row that names one.

    A named one is kept by a coin, else another is told, all alike; where none is named, any of them, all alike.
    """
    rows = np.arange(len(named))
    true, kept = named.argmax(axis=1), coin_flips(entropy, len(named), response.kept)
    other = (true + 1 + _uniform(response.choices - 1, len(named), entropy)) % response.choices
    told = np.where(kept, true, other)
    answered = np.zeros_like(named)
    answered[rows, np.where(named.any(axis=1), told, _uniform(response.choices, len(named), entropy))] = 1
    return answered


def _uniform(bound: int, size: int, entropy: Entropy) -> Integers:
    """Independent integers below `bound`, exactly alike: words that would favour the small ones are drawn again."""
    fair = (1 << 64) // bound * bound - 1
    words = entropy.words(size).copy()
    while (unfair := np.flatnonzero(words > np.uint64(fair))).size:
        words[unfair] = entropy.words(unfair.size)
    return (words % np.uint64(bound)).astype(np.int64)


def rounded_gaussian(std: float, size: int, entropy: Entropy) -> Integers:
    """`size` independent draws of round(g), g ~ N(0, std^2); std 0 is for infinite budgets only."""
    if not 0 <= std <= LARGEST_NOISE_STEPS:
        raise QueryError(f"noise of standard deviation {std} grid steps is not in [0, {LARGEST_NOISE_STEPS:g}]")
    noise = np.zeros(size, dtype=np.int64)
    if std > 0:
        for start in range(0, size, _CHUNK):
            part = noise[start : start + _CHUNK]
            part[:] = _draw(std, entropy.words(part.size), entropy)
    return noise


def _draw(std: float, words: npt.NDArray[np.uint64], entropy: Entropy) -> Integers:
    tails = words & _MAGNITUDE
    middles = tails.astype(np.float64)
    estimates = -std * ndtri((middles + 0.5) * 2.0**-64)
    with np.errstate(divide="ignore"):  # the interval of tail 0 reaches to infinity
        margins = _NDTRI_ERROR * (std + estimates) + std / middles  # half an interval is at most 0.63 std / tail
    draws = np.floor(estimates + 0.5).astype(np.int64)
    undecided = np.flatnonzero(np.abs(estimates - np.floor(estimates) - 0.5) <= margins)
    # A context of our own, since all threads share the global one's precision; making one takes a millisecond.
    context = mpmath.MPContext() if undecided.size else None
    for index in undecided:
        tail = _LazyTail(std, int(tails[index]), entropy, context)
        draws[index] = tail.cell(float(estimates[index]), float(margins[index]))
    return np.asarray(np.where(words > _MAGNITUDE, -draws, draws))


class _LazyTail:
    """|g| of one draw, known by a tail probability whose binary places are drawn as far as comparisons need them."""

    def __init__(self, std: float, tail: int, entropy: Entropy, context: mpmath.MPContext) -> None:
        self._std = std
        self._tail, self._places = tail, 64  # the probability is in [tail, tail + 1) / 2^places
        self._entropy = entropy
        self._context = context

    def cell(self, estimate: float, margin: float) -> int:
        """round(|g|), which is within `margin` of `estimate`."""
        if math.isfinite(margin):
            low, high = max(0, math.floor(estimate - margin + 0.5)), math.floor(estimate + margin + 0.5)
        else:
            low, high = 0, 1
            while self._is_beyond(high):
                low, high = high + 1, 2 * high + 1
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self._is_beyond(middle) else (low, middle)
        return low

    def _is_beyond(self, cell: int) -> bool:
        """Whether |g| > cell + 1/2, that is, whether its tail probability is below the boundary's."""
        while True:
            boundary = self._scaled_tail_probability(cell)
            if self._tail + 1 <= boundary - _COMPARISON_ERROR:
                return True
            if self._tail >= boundary + _COMPARISON_ERROR:
                return False
            self._tail = self._tail << 64 | int(self._entropy.words(1)[0])
            self._places += 64

    def _scaled_tail_probability(self, cell: int) -> mpmath.mpf:
        """P(g > cell + 1/2) * 2^places."""
        context = self._context
        context.prec = self._places + 64
        deviations = context.mpf(2 * cell + 1) / 2 / self._std
        return context.ldexp(context.erfc(deviations / context.sqrt(2)) / 2, self._places)
