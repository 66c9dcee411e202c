"""Audits: honest mechanisms pass, broken ones are found out, and the statistics are what they say."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import binom
from support import broken_silos
from support.broken_silos import HONEST
from support.toy_images import toy_records

from silosynth.common.datasets.digits import SCHEMA
from silosynth.common.errors import ConfigError
from silosynth.common.events import SampledGaussian
from silosynth.common.queries import Mixtures, Query
from silosynth.common.schema import Schema
from silosynth.deploy.attacks.auditing import audit_in_one_run, audit_repeatedly
from silosynth.deploy.attacks.canaries import canaries
from silosynth.deploy.attacks.scoring import Answer
from silosynth.server.attacks import bounds
from silosynth.server.recipes import recipe_named
from silosynth.server.recipes.base import Ask, Task

CLOCK_BITS = 17
BROKEN = {
    "no noise": broken_silos.no_noise,
    "noise / 3": broken_silos.third_of_the_noise,
    "counts leaked": broken_silos.counts_leaked,
}


def first_query(recipe: str, epsilon: float, schema: Schema = SCHEMA, **parameters: int) -> Query:
    made = recipe_named(recipe)
    return Ask.of(next(made.steps(Task(schema, epsilon, 1e-5), made.parameters(**parameters)))).query


def flagged(query: Query, answer: Answer, audits: int) -> int:
    return sum(audit_repeatedly(query, answer, HONEST.exact_answer, seed).flagged for seed in range(audits))


@pytest.mark.parametrize("epsilon", [1.0, 8.0])
@pytest.mark.parametrize("recipe", ["prototypes", "ridge"])
def test_honest_mechanisms_pass_and_broken_ones_do_not(recipe: str, epsilon: float) -> None:
    query = first_query(recipe, epsilon)
    assert flagged(query, HONEST.answer, 1) == 0
    for answer in BROKEN.values():
        assert flagged(query, answer, 1) == 1


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("epsilon", [1.0, 8.0])
@pytest.mark.parametrize(
    ("recipe", "parameters"),
    [("prototypes", {}), ("ridge", {}), ("ldpdc", {"mixtures": 10}), ("merf", {"features": 200})],
)
def test_twenty_audits_each(recipe: str, parameters: dict[str, int], epsilon: float) -> None:
    query = first_query(recipe, epsilon, **parameters)
    found = {name: flagged(query, answer, 20) for name, answer in {"honest": HONEST.answer, **BROKEN}.items()}
    print(recipe, epsilon, found)
    assert found["honest"] == 0
    assert found["no noise"] == found["counts leaked"] == 20
    assert found["noise / 3"] >= 19


def test_one_run_bounds_epsilon_from_below_and_knows_its_power() -> None:
    query = first_query("prototypes", 1.0)
    honest = audit_in_one_run(query, HONEST.answer, HONEST.exact_answer, 0)
    assert not honest.flagged
    assert honest.epsilon_claimed is not None
    assert honest.epsilon_lower < honest.epsilon_claimed
    assert honest.power is not None
    assert honest.power.share >= 0.7
    naked = audit_in_one_run(query, broken_silos.no_noise, HONEST.exact_answer, 0)
    assert naked.flagged
    assert naked.correct == naked.guesses


def test_at_large_epsilon_one_run_says_that_it_proves_little() -> None:
    audit = audit_in_one_run(first_query("prototypes", 8.0), HONEST.answer, HONEST.exact_answer, 0)
    assert audit.power is not None
    assert audit.power.share < 0.5
    assert not audit.flagged


def test_sampled_queries_are_audited_sample_by_sample() -> None:
    query = first_query("ldpdc", 1.0)
    assert query.event().sampling_probability < 1
    assert flagged(query, HONEST.answer, 1) == 0
    assert flagged(query, broken_silos.third_of_the_noise, 1) == 1


def test_predictable_noise_is_undone() -> None:
    """Seeded by a clock of few bits, as in published code; here of 9, the slow test tries all 17."""
    _undo(bits=9)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_predictable_noise_of_a_17_bit_clock_is_undone() -> None:
    _undo(bits=CLOCK_BITS)


def _undo(bits: int) -> None:
    records, moment = toy_records((30, 20, 10)), (1 << bits) - 5
    query = first_query("prototypes", 1.0, records.schema)
    assert isinstance(query, Mixtures)
    released = broken_silos.clock_noise(query, records, moment)
    clean = broken_silos.recovered(query, released, range(1 << bits))
    assert clean is not None
    assert (clean == HONEST.exact_answer(query, records)).all()
    honest = HONEST.answer(query, records)
    assert broken_silos.recovered(query, honest, range(1 << min(bits, 9))) is None


def test_canaries_are_orthogonal_and_as_long_as_records_can_be() -> None:
    query = first_query("prototypes", 1.0)
    assert isinstance(query, Mixtures)
    birds = canaries(query, 640)
    made = np.stack([HONEST.exact_answer(query, birds.take(np.array([i]))) for i in range(0, 640, 37)])[:, :-10]
    lengths = np.linalg.norm(made, axis=1) * query.plan().grid
    assert lengths == pytest.approx(query.clip, rel=0.01)
    overlap = made @ made.T * query.plan().grid ** 2 / query.clip**2
    assert np.abs(overlap - np.eye(len(made))).max() < 0.02


@pytest.mark.parametrize("shape", [(8, 8, 1), (7, 5, 3), (14,)])
def test_canaries_fit_any_shape(shape: tuple[int, ...]) -> None:
    birds = canaries(first_query("prototypes", 1.0, Schema(shape, 3)), 9)
    assert birds.features.shape == (9, *shape)
    assert np.abs(birds.features).max() <= 1


def test_what_claims_no_privacy_cannot_be_audited() -> None:
    with pytest.raises(ConfigError, match="cannot be audited"):
        audit_repeatedly(first_query("prototypes", math.inf), HONEST.answer, HONEST.exact_answer, 0)


@pytest.mark.parametrize("successes", [0, 1, 50, 99, 100])
def test_intervals_cover(successes: int) -> None:
    low, high = bounds.clopper_pearson(successes, 100)
    assert 0 <= low <= successes / 100 <= high <= 1
    assert binom.sf(successes - 1, 100, low) == pytest.approx(0.025) or successes == 0
    assert binom.cdf(successes, 100, high) == pytest.approx(0.025) or successes == 100


def test_without_delta_the_bound_is_that_of_randomized_response() -> None:
    share = math.e / (1 + math.e)
    assert bounds.one_run_p_value(100, 80, 70, 1.0, 0.0) == pytest.approx(binom.sf(69, 80, share))
    assert bounds.one_run_p_value(100, 80, 70, 1.0, 1e-3) > bounds.one_run_p_value(100, 80, 70, 1.0, 0.0)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_randomized_response_is_hardly_ever_accused(epsilon: float) -> None:
    """The worst epsilon-DP mechanism there is: more than one in twenty accusations would be wrong."""
    share, counts = 1 / (1 + math.exp(-epsilon)), range(120, 301, 3)
    for lower in (partial(bounds.one_run_epsilon, 300, 300), partial(bounds.repeated_epsilon, 300)):
        accused = [count for count in counts if lower(count, 0.0, 0.95) > epsilon]
        assert binom.sf(min(accused) - 1, 300, share) <= 0.05
        assert binom.sf(min(accused) - 7, 300, share) > 0.05  # and not for want of trying


@pytest.mark.parametrize("noise", [0.6, 1.081, 3.731])
def test_what_a_gaussian_mechanism_lets_be_won(noise: float) -> None:
    assert bounds.largest_share_won([SampledGaussian(noise)]) == pytest.approx(ndtr(0.5 / noise), abs=1e-6)
    assert bounds.equivalent_noise([SampledGaussian(noise)]) == pytest.approx(noise, rel=1e-4)
    assert bounds.largest_share_won([SampledGaussian(noise, 0.1)]) < ndtr(0.5 / noise)


def test_power_is_that_of_the_test() -> None:
    tried = np.random.default_rng(0).binomial(1000, 0.62, 2000)
    share = np.mean([bounds.refutes(int(right), 1000, 0.55, 0.999) for right in tried])
    assert bounds.power_of_repeated(1000, 0.55, 0.62, 0.999) == pytest.approx(share, abs=0.03)
