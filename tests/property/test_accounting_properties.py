"""Laws of accounting that hold for any events."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from silosynth.common.accounting import calibrate, epsilon, rdp_epsilon
from silosynth.common.events import SampledGaussian, merge

SLACK = 1e-3  # relative; discretization is coarser or finer as events come and go
TINY = 1e-4  # absolute

DELTAS = st.sampled_from([1e-8, 1e-5, 1e-3])
NOISES = st.floats(0.5, 100)
RATES = st.floats(1e-4, 0.9)
COUNTS = st.integers(1, 1000)
GAUSSIANS = st.builds(SampledGaussian, NOISES, st.just(1.0), COUNTS)
SAMPLED = st.builds(SampledGaussian, NOISES, RATES, COUNTS)
EVENTS = st.one_of(GAUSSIANS, SAMPLED)
FEW = st.lists(EVENTS, max_size=3)

costly = settings(max_examples=30, deadline=None)
cheap = settings(max_examples=300, deadline=None)


def at_most(small: float, large: float) -> bool:
    return small <= large * (1 + SLACK) + TINY


@cheap
@given(st.lists(EVENTS, max_size=8), st.randoms(use_true_random=False))
def test_merging_ignores_order_and_repetition(events: list[SampledGaussian], order: Random) -> None:
    merged = merge(events)
    order.shuffle(events)
    assert merge(events) == merged == merge(merged)
    assert sum(event.count for event in merged) == sum(event.count for event in events)
    assert len({replace(event, count=1) for event in merged}) == len(merged)


@costly
@given(FEW, DELTAS, st.randoms(use_true_random=False))
def test_cost_ignores_order_and_how_counts_are_split(
    events: list[SampledGaussian], delta: float, order: Random
) -> None:
    split = [part for event in events for part in halves(event)]
    order.shuffle(split)
    assert epsilon(split, delta) == epsilon(events, delta)
    assert rdp_epsilon(split, delta) == rdp_epsilon(events, delta)


def halves(event: SampledGaussian) -> Sequence[SampledGaussian]:
    half = event.count // 2
    return [replace(event, count=half), replace(event, count=event.count - half)] if half else [event]


@costly
@given(FEW, EVENTS, DELTAS)
def test_one_more_event_never_costs_less(events: list[SampledGaussian], more: SampledGaussian, delta: float) -> None:
    assert at_most(epsilon(events, delta), epsilon([*events, more], delta))
    assert at_most(rdp_epsilon(events, delta), rdp_epsilon([*events, more], delta))


@costly
@given(EVENTS, st.floats(1, 10), DELTAS)
def test_more_noise_never_costs_more(event: SampledGaussian, factor: float, delta: float) -> None:
    noisier = replace(event, noise_multiplier=event.noise_multiplier * factor)
    assert at_most(epsilon([noisier], delta), epsilon([event], delta))
    assert at_most(rdp_epsilon([noisier], delta), rdp_epsilon([event], delta))


@costly
@given(SAMPLED, DELTAS)
def test_sampling_never_costs_more(event: SampledGaussian, delta: float) -> None:
    assert at_most(epsilon([event], delta), epsilon([replace(event, sampling_probability=1.0)], delta))


@costly
@given(FEW, DELTAS)
def test_rdp_never_undercuts_pld(events: list[SampledGaussian], delta: float) -> None:
    assert at_most(epsilon(events, delta), rdp_epsilon(events, delta))


@cheap
@given(st.lists(GAUSSIANS, min_size=1, max_size=20), DELTAS)
def test_gaussians_compose_to_one_gaussian(events: list[SampledGaussian], delta: float) -> None:
    together = 1 / math.sqrt(sum(event.count / event.noise_multiplier**2 for event in events))
    assert epsilon(events, delta) == pytest.approx(epsilon([SampledGaussian(together)], delta), rel=1e-9, abs=1e-9)


@settings(max_examples=6, deadline=None)
@given(st.floats(0.05, 8), RATES, COUNTS, st.lists(GAUSSIANS, max_size=2), DELTAS)
def test_calibration_is_within_budget_and_tight(
    target: float, rate: float, count: int, past: list[SampledGaussian], delta: float
) -> None:
    target += epsilon(past, delta)

    def events_at(noise: float) -> list[SampledGaussian]:
        return [*past, SampledGaussian(noise, rate, count)]

    noise = calibrate(events_at, target, delta)
    assert epsilon(events_at(noise), delta) <= target
    assert at_most(target, epsilon(events_at(noise * 0.995), delta))
