"""The noise is exactly a rounded Gaussian: in distribution, at the edges of its cells and far out in its tails."""

from __future__ import annotations

import random
from collections.abc import Callable

import mpmath
import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy import stats
from scipy.special import ndtr, ndtri
from support.entropies import ScriptedEntropy, SeededEntropy

from silosynth.client.guard.entropy import SystemEntropy, coin_flips
from silosynth.client.guard.noise import add_noise, rounded_gaussian
from silosynth.common.errors import DataError, QueryError
from silosynth.common.queries import ClassCounts
from silosynth.common.schema import Schema

Draws = npt.NDArray[np.int64]

FALSE_ALARM = 1e-8
SIGN = 1 << 63
EXACT = mpmath.MPContext()
EXACT.prec = 400


def plausibility(draws: Draws, std: float) -> float:
    """The p-value of a chi-square test against the exact distribution, in cells of about a tenth of `std`."""
    width = max(1, round(std / 10))
    edges = np.arange(-60 * width, 60 * width + 1, width) - 0.5
    below = np.concatenate([[0.0], ndtr(edges / std), [1.0]])
    expected = np.diff(below) * draws.size
    observed = np.bincount(np.searchsorted(edges, draws), minlength=expected.size)
    first, last = np.flatnonzero(expected >= 200)[[0, -1]]
    groups = [0, *range(first + 1, last + 1)]  # what lies further out is counted with the last rich cells
    sums = [np.add.reduceat(counts, groups) for counts in (observed, expected)]
    return float(stats.chisquare(*sums, sum_check=False).pvalue)


@pytest.mark.parametrize("std", [0.3, 1, 7.3, 1000, 1e6, 3e10])
def test_draws_follow_the_exact_distribution_and_a_mutant_does_not(std: float) -> None:
    draws = 1_000_000
    assert plausibility(rounded_gaussian(std, draws, SystemEntropy()), std) > FALSE_ALARM
    assert plausibility(rounded_gaussian(0.98 * std, draws, SystemEntropy()), std) < FALSE_ALARM


def test_the_largest_noise_follows_the_exact_distribution() -> None:
    assert plausibility(rounded_gaussian(1e12, 50_000, SystemEntropy()), 1e12) > FALSE_ALARM


def test_no_seed_reaches_the_noise() -> None:
    def after_seeding() -> Draws:
        torch.manual_seed(7)
        np.random.seed(7)
        random.seed(7)
        return rounded_gaussian(1000, 100, SystemEntropy())

    assert not np.array_equal(after_seeding(), after_seeding())


def impossible_share(release: Callable[[int], npt.NDArray[np.float64]], value: int, neighbour: int) -> float:
    """The share of outputs for `value` that no double-precision noise turns `neighbour` into (Mironov 2012)."""
    outputs = release(value)
    noise = outputs - neighbour
    candidates = (noise, np.nextafter(noise, -np.inf), np.nextafter(noise, np.inf))
    possible = np.any([neighbour + candidate == outputs for candidate in candidates], axis=0)
    return 1 - float(possible.mean())


def test_no_output_is_impossible_under_the_neighbour_while_float_noise_gives_it_away() -> None:
    draws, std, step = 1_000_000, 64, 64  # sigma 1 on class counts' grid of 1/64

    def ours(value: int) -> npt.NDArray[np.float64]:
        return (value + rounded_gaussian(std, draws, SystemEntropy())).astype(np.float64)

    def floats(value: int) -> npt.NDArray[np.float64]:
        return value + np.random.default_rng().normal(size=draws)

    assert impossible_share(floats, 0, 1) > 0.4
    assert impossible_share(ours, 0, step) == 0
    seen = np.unique(ours(0))
    assert (ndtr((seen - step + 0.5) / std) > ndtr((seen - step - 0.5) / std)).all()


def scaled_tail(cell: int, std: float, places: int) -> mpmath.mpf:
    """P(g > cell + 1/2) in units of 2^-places."""
    return EXACT.ldexp(EXACT.erfc(EXACT.mpf(2 * cell + 1) / 2 / std / EXACT.sqrt(2)) / 2, places)


@pytest.mark.parametrize(
    ("cell", "std"), [(0, 1.0), (3, 1.0), (0, 0.3), (20, 7.3), (123456789, 1e9), (4 * 10**12, 1e12)]
)
def test_a_word_on_a_boundary_is_settled_by_further_words(cell: int, std: float) -> None:
    word = int(scaled_tail(cell, std, 64))
    second = int(scaled_tail(cell, std, 128)) - (word << 64)
    scripts = {
        (word - 1,): cell + 1,
        (word + 1,): cell,
        (word, second - 1): cell + 1,
        (word, second + 1): cell,
        (word, second, 0): cell + 1,
        (word, second, (1 << 64) - 1): cell,
        (word, 0): cell + 1,
        (word, (1 << 64) - 1): cell,
    }
    for script, expected in scripts.items():
        for sign, first in ((1, script[0]), (-1, script[0] | SIGN)):
            entropy = ScriptedEntropy(first, *script[1:])
            assert rounded_gaussian(std, 1, entropy).tolist() == [sign * expected]
            assert entropy.left == []


@pytest.mark.parametrize("std", [0.01, 1.0, 7.3, 1e6, 1e12])
@pytest.mark.parametrize("words", [(0, 1 << 63), (0, 12345), (0, 0, 1 << 40), (0, 0, 0, 99, 1 << 62), (1,), (5,)])
def test_tails_have_no_end(std: float, words: tuple[int, ...]) -> None:
    spare = [1 << 62] * 4
    entropy = ScriptedEntropy(*words, *spare)
    (draw,) = rounded_gaussian(std, 1, entropy).tolist()
    drawn = [*words, *spare][: len(words) + len(spare) - len(entropy.left)]
    tail, places = 0, 64 * len(drawn)
    for word in drawn:
        tail = tail << 64 | word
    assert scaled_tail(draw, std, places) <= tail
    assert draw == 0 or tail + 1 <= scaled_tail(draw - 1, std, places)
    assert std < 1 or draw > 8.5 * std


def test_double_precision_errs_far_less_than_the_margin_assumes() -> None:
    generator = np.random.default_rng(0)
    tails = np.concatenate([generator.uniform(0, 0.5, 1000), 0.5 * np.exp(-generator.uniform(0, 44, 2000))])
    for tail, deviations in zip(tails.tolist(), (-ndtri(tails)).tolist(), strict=True):
        z = EXACT.mpf(deviations)
        density = EXACT.exp(-z * z / 2) / EXACT.sqrt(2 * EXACT.pi)
        error = (EXACT.erfc(z / EXACT.sqrt(2)) / 2 - tail) / density
        assert abs(error) < 1e-15 * (1 + z)


def test_long_draws_use_every_word_once() -> None:
    size = (1 << 20) + 3
    draws = rounded_gaussian(5.0, size, SeededEntropy())
    assert np.array_equal(draws[: 1 << 20], rounded_gaussian(5.0, 1 << 20, SeededEntropy()))
    assert draws.size == size


def test_no_noise_takes_no_randomness() -> None:
    assert rounded_gaussian(0.0, 5, ScriptedEntropy()).tolist() == [0] * 5


@pytest.mark.parametrize("std", [-1.0, float("nan"), float("inf"), 2.0**51])
def test_noise_out_of_range_is_refused(std: float) -> None:
    with pytest.raises(QueryError, match="standard deviation"):
        rounded_gaussian(std, 1, SystemEntropy())


def counts_query(noise_multiplier: float) -> ClassCounts:
    return ClassCounts(schema=Schema((2,), 3), noise_multiplier=noise_multiplier)


def test_noise_is_added_in_steps_of_the_grid() -> None:
    values = np.array([64, -128, 0])
    noisy = add_noise(values, counts_query(2.0).plan(), SeededEntropy())
    assert np.array_equal(noisy - values, rounded_gaussian(2.0 * 64, 3, SeededEntropy()))
    assert np.array_equal(add_noise(values, counts_query(0.0).plan(), ScriptedEntropy()), values)


@pytest.mark.parametrize("extreme", [(1 << 62) + 1, -(1 << 62) - 1])
def test_sums_that_would_overflow_are_refused(extreme: int) -> None:
    with pytest.raises(DataError, match="do not fit"):
        add_noise(np.array([0, extreme, 0]), counts_query(1.0).plan(), SystemEntropy())


@pytest.mark.parametrize("values", [np.zeros(3), np.zeros(4, dtype=np.int64), np.zeros(3, dtype=np.int32)])
def test_only_whole_numbers_of_the_right_size_get_noise(values: npt.NDArray[np.int64]) -> None:
    with pytest.raises(ValueError, match="int64"):
        add_noise(values, counts_query(1.0).plan(), SystemEntropy())


@pytest.mark.parametrize("probability", [1e-3, 0.25, 0.9])
def test_coins_come_true_as_often_as_accounted(probability: float) -> None:
    flips = 1_000_000
    heads = int(coin_flips(SystemEntropy(), flips, probability).sum())
    assert stats.binomtest(heads, flips, probability).pvalue > FALSE_ALARM


def test_coins_at_the_ends() -> None:
    assert coin_flips(ScriptedEntropy(), 3, 1.0).all()
    almost_one = np.nextafter(1.0, 0.0)
    assert coin_flips(ScriptedEntropy(0, (1 << 64) - 2049, (1 << 64) - 2048), 3, almost_one).tolist() == [
        True,
        True,
        False,
    ]
    assert coin_flips(ScriptedEntropy(0, 1), 2, 2.0**-64).tolist() == [True, False]
    assert not coin_flips(ScriptedEntropy(0), 1, 2.0**-65).any()
