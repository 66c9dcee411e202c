"""The accountant against published and exact numbers, and against events chosen to hurt it."""

from __future__ import annotations

import math
import tracemalloc

import dp_accounting
import pytest
from dp_accounting.pld import PLDAccountant
from scipy.optimize import brentq

from silosynth.common import accounting
from silosynth.common.accounting import calibrate, epsilon, rdp_epsilon
from silosynth.common.errors import BudgetExhausted, QueryError
from silosynth.common.events import SampledGaussian, from_proto, merge
from silosynth.protos.v1 import release_pb2

DELTA = 1e-5
SMALLEST_CLASS = {"MNIST": 5421, "FMNIST": 6000, "CIFAR10": 5000}

SPS_TABLE_11 = {
    1: (4.045, 5.720, 7.006, 8.090, 9.045),
    2: (2.149, 3.039, 3.722, 4.298, 4.805),
    4: (1.157, 1.637, 2.004, 2.315, 2.588),
    8: (0.637, 0.901, 1.104, 1.275, 1.425),
}


@pytest.mark.parametrize("target", SPS_TABLE_11)
def test_sps_table_11_by_rdp(target: float) -> None:
    for compositions, published in enumerate(SPS_TABLE_11[target], start=1):
        noise = brentq(
            lambda z, count=compositions: rdp_epsilon([SampledGaussian(z, count=count)], DELTA) - target, 0.1, 20
        )
        assert noise == pytest.approx(published, abs=0.002)


@pytest.mark.parametrize(
    ("dataset", "compositions", "expected"),
    [
        *(("MNIST", 10_000, 6.114), ("FMNIST", 10_000, 5.443), ("CIFAR10", 10_000, 6.713)),  # NDPDC
        *(("MNIST", 50, 1.100), ("FMNIST", 50, 1.059), ("CIFAR10", 50, 1.136)),  # LDPDC
    ],
)
def test_ndpdc_and_ldpdc_by_rdp(dataset: str, compositions: int, expected: float) -> None:
    event = SampledGaussian(1.0, 50 / SMALLEST_CLASS[dataset], compositions)
    assert rdp_epsilon([event], DELTA) == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize(("compositions", "expected"), [(10_000, 5.64), (50, 0.54)])
def test_ndpdc_and_ldpdc_by_pld(compositions: int, expected: float) -> None:
    assert epsilon([SampledGaussian(1.0, 50 / 5421, compositions)], DELTA) == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize(("target", "exact"), [(1, 3.731), (2, 1.994), (4, 1.081), (8, 0.600)])
def test_exact_noise_of_one_gaussian(target: float, exact: float) -> None:
    assert brentq(lambda z: epsilon([SampledGaussian(z)], DELTA) - target, 0.1, 20) == pytest.approx(exact, abs=5e-4)


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (SampledGaussian(2 * math.sqrt(2), count=5), 3.341),  # Private Evolution
        (SampledGaussian(5.0), 0.7255),  # DP-MERF
        (SampledGaussian(0.5), 9.997),  # DP-MERF
        (SampledGaussian(1 / 2.0004), 10),  # DP-GENG's mu
        (SampledGaussian(1 / 3.4478), 20),
        (SampledGaussian(1 / 0.2681), 1),
        (SampledGaussian(100 / (2 * math.sqrt(256)), count=200), 28.84),  # FedDPSD as printed: 256 answers a round
        (SampledGaussian(100 / 2, count=10_004), 10),  # FedDPSD: what would fit
        (SampledGaussian(1688 / 2, count=51_200), 1),
    ],
)
def test_exact_epsilon_of_gaussians(event: SampledGaussian, expected: float) -> None:
    assert epsilon([event], DELTA) == pytest.approx(expected, rel=5e-4)


def test_dosser_noise_is_where_opacus_stops_to_bisect() -> None:
    """Its published 4.297 is not the smallest noise: Opacus halves [0, 10] until RDP is within 0.01 of the target."""
    low, high, cost = 0.0, 10.0, 0.0
    while 1 - cost > 0.01:
        middle = (low + high) / 2
        found = rdp_epsilon([SampledGaussian(middle, 0.01, 10_000)], 5e-6)
        low, high, cost = (low, middle, found) if found < 1 else (middle, high, cost)
    assert high == pytest.approx(4.297, abs=5e-4)


def test_sampled_gaussian_by_pld() -> None:
    assert epsilon([SampledGaussian(4.0, 0.01, 10_000)], 4.243e-6) == pytest.approx(1, rel=5e-4)


@pytest.mark.parametrize("event", [SampledGaussian(4.0, 0.01, 10_000), SampledGaussian(1.0, 0.01, 50)], ids=str)
def test_coarser_discretization_only_rounds_up(event: SampledGaussian) -> None:
    accountant = PLDAccountant(value_discretization_interval=3e-5)
    gaussian = dp_accounting.GaussianDpEvent(event.noise_multiplier)
    accountant.compose(dp_accounting.PoissonSampledDpEvent(event.sampling_probability, gaussian), event.count)
    finer = accountant.get_epsilon(DELTA)
    assert finer * (1 - 1e-6) <= epsilon([event], DELTA) <= finer * (1 + 5e-4)


def test_pld_of_barely_sampled_meets_the_closed_form() -> None:
    assert epsilon([SampledGaussian(2.0, 1 - 1e-12)], DELTA) == pytest.approx(
        epsilon([SampledGaussian(2.0)], DELTA), rel=1e-4
    )


def test_nothing_costs_nothing() -> None:
    assert epsilon([], DELTA) == rdp_epsilon([], DELTA) == 0


@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_no_noise_is_no_privacy(rate: float) -> None:
    for noise in (0.0, 1e-300, 1e-6):
        events = [SampledGaussian(4.0), SampledGaussian(noise, rate)]
        assert epsilon(events, DELTA) == rdp_epsilon(events, DELTA) == math.inf


HOSTILE = [
    SampledGaussian(0.11, 0.5, 10**9),
    SampledGaussian(0.11, 0.5, 1 << 62),
    SampledGaussian(0.11, 1e-6, 10**6),
    SampledGaussian(1.0, 5e-324),
    SampledGaussian(1e-3, 1e-9, 10**6),
    SampledGaussian(1e300, 0.5, 10**6),
    SampledGaussian(1e300, 1.0, 1 << 62),
    SampledGaussian(1e4, 0.5, 10**6),
    SampledGaussian(1.0, 1 - 2**-53, 1 << 62),
    SampledGaussian(1.0, 1e-9, 10**6),
]


@pytest.mark.parametrize("event", HOSTILE, ids=str)
def test_hostile_events_are_accounted_in_bounded_memory(event: SampledGaussian) -> None:
    tracemalloc.start()
    cost = epsilon([event, SampledGaussian(3.0)], DELTA)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert cost >= epsilon([SampledGaussian(3.0)], DELTA) * (1 - 1e-6)
    assert peak < 1 << 29


def test_many_compositions_lose_no_cost_to_rounding() -> None:
    """2^62 compositions of 1e-16 each would vanish, or turn negative, in double precision."""
    barely = SampledGaussian(1e3, 1e-3, 1 << 62)
    assert epsilon([barely], DELTA) > 1e6
    assert rdp_epsilon([barely], DELTA) >= epsilon([barely], DELTA)


def test_too_many_kinds_of_events_fall_back_to_rdp() -> None:
    kinds = [SampledGaussian(2 + index / 100, 0.01, 10) for index in range(33)]
    assert epsilon(kinds, DELTA) == rdp_epsilon(kinds, DELTA) > epsilon(kinds[:32], DELTA)


def test_tiny_delta_falls_back_to_rdp() -> None:
    event = [SampledGaussian(2.0, 0.01, 10)]
    assert epsilon(event, 1e-12) == rdp_epsilon(event, 1e-12)


def test_costly_compositions_fall_back_to_rdp() -> None:
    for event in (SampledGaussian(0.05, 0.1), SampledGaussian(0.5, 0.5, 1000)):
        assert epsilon([event], DELTA) == rdp_epsilon([event], DELTA)


def test_rdp_gives_way_to_the_closed_form_of_unsampled_gaussians() -> None:
    event = SampledGaussian(0.5, 0.999, 1000)
    assert rdp_epsilon([event], DELTA) > epsilon([event], DELTA) == epsilon([SampledGaussian(0.5, 1.0, 1000)], DELTA)


def test_excluded_orders_are_not_complained_about(caplog: pytest.LogCaptureFixture) -> None:
    accounting._divergences_of_one.cache_clear()
    rdp_epsilon([SampledGaussian(0.3, 0.5)], DELTA)
    assert caplog.records == []


def test_infinite_budgets_need_no_noise() -> None:
    assert calibrate(lambda z: [SampledGaussian(z)], math.inf, DELTA) == 0


@pytest.mark.parametrize("target", [0.0, -1.0])
def test_no_budget_left(target: float) -> None:
    with pytest.raises(BudgetExhausted):
        calibrate(lambda z: [SampledGaussian(z)], target, DELTA)


def test_a_budget_the_past_has_used_up_fits_nothing() -> None:
    past = SampledGaussian(3.731)
    with pytest.raises(BudgetExhausted, match="no reasonable noise"):
        calibrate(lambda z: [past, SampledGaussian(z)], 0.99, DELTA)


def test_calibration_ends_where_the_cost_jumps() -> None:
    """Between PLD and its fallback no noise costs what is asked for; the next larger noise will do."""
    kinds = [SampledGaussian(3 + index / 100, 0.01, 10) for index in range(31)]

    def events_at(noise: float) -> list[SampledGaussian]:
        return [
            *kinds,
            *(SampledGaussian(100.0 + index, 0.01) for index in range(2) if noise < 5),
            SampledGaussian(50.0),
        ]

    below, above = epsilon(events_at(6.0), DELTA), epsilon(events_at(4.0), DELTA)
    assert calibrate(events_at, (below + above) / 2, DELTA) == pytest.approx(5, rel=1e-3)


def test_a_lavish_budget_still_gets_noise() -> None:
    noise = calibrate(lambda z: [SampledGaussian(z)], 1e9, DELTA)
    assert epsilon([SampledGaussian(noise)], DELTA) < 1e9
    assert noise > 0


@pytest.mark.parametrize("target", [0.01, 0.1, 1, 8, 50])
@pytest.mark.parametrize("rate", [1.0, 0.1])
def test_calibration_uses_nearly_all_of_the_budget(target: float, rate: float) -> None:
    past = [SampledGaussian(1000.0)]

    def events_at(noise: float) -> list[SampledGaussian]:
        return [*past, SampledGaussian(noise, rate, 20), SampledGaussian(10 * noise)]

    spent = epsilon(events_at(calibrate(events_at, target, DELTA)), DELTA)
    assert 0.998 * target < spent <= target


def test_events_out_of_range_are_refused() -> None:
    bad = [(math.nan, 1.0, 1), (math.inf, 1.0, 1), (-1.0, 1.0, 1), (1.0, 0.0, 1), (1.0, 1.1, 1), (1.0, math.nan, 1)]
    for noise, rate, count in [*bad, (1.0, 1.0, 0), (1.0, 1.0, 1 << 63)]:
        with pytest.raises(QueryError):
            SampledGaussian(noise, rate, count)


def test_events_survive_the_wire_and_unknown_ones_do_not_pass() -> None:
    event = SampledGaussian(1.5, 0.25, 7)
    assert from_proto(event.to_proto()) == event
    with pytest.raises(QueryError, match="unknown kind"):
        from_proto(release_pb2.Event())


def test_merging_counts_equal_events_together() -> None:
    parts = [SampledGaussian(2.0, 0.1, 3), SampledGaussian(1.0), SampledGaussian(2.0, 0.1, 4)]
    assert merge(parts) == (SampledGaussian(1.0), SampledGaussian(2.0, 0.1, 7))
    assert merge([]) == ()
