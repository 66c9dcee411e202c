"""What a silo allows, decided without data, ledger or wire."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from support.artifacts import naming
from support.guards import DELTA, SCHEMA, counts_query

from silosynth.client.config import BudgetSection, PolicySection
from silosynth.client.guard.policy import check_budget, check_names, check_policy
from silosynth.common import accounting, shipped
from silosynth.common.errors import BudgetExhausted, ConfigError, PolicyDenied
from silosynth.common.events import SampledGaussian
from silosynth.common.queries import SufficientStatistics

ALLOWED = PolicySection(consent="auto", mechanisms=("class_counts", "sufficient_statistics"))


def test_no_policy_denies() -> None:
    with pytest.raises(PolicyDenied, match="consent"):
        check_policy(counts_query(5.0), PolicySection(), DELTA)


def test_consent_alone_allows_no_mechanism() -> None:
    with pytest.raises(PolicyDenied, match="class_counts"):
        check_policy(counts_query(5.0), PolicySection(consent="auto"), DELTA)


def test_mechanisms_without_consent_are_denied() -> None:
    with pytest.raises(PolicyDenied, match="consent"):
        check_policy(counts_query(5.0), PolicySection(mechanisms=("class_counts",)), DELTA)


def test_what_is_allowed_passes() -> None:
    check_policy(counts_query(5.0), ALLOWED, DELTA)


def test_large_release_is_denied_by_its_declared_size() -> None:
    query = SufficientStatistics(
        schema=SCHEMA, noise_multiplier=5.0, center=0.0, clip=1.0, class_weight=1.0, count_weight=1.0
    )
    size = query.layout().size
    check_policy(query, ALLOWED.model_copy(update={"max_values_per_release": size}), DELTA)
    with pytest.raises(PolicyDenied, match=f"{size} values"):
        check_policy(query, ALLOWED.model_copy(update={"max_values_per_release": size - 1}), DELTA)


def test_epsilon_of_one_query_is_limited() -> None:
    policy = ALLOWED.model_copy(update={"max_epsilon_per_query": 0.5})
    check_policy(counts_query(10.0), policy, DELTA)
    with pytest.raises(PolicyDenied, match=r"epsilon = 0\.9\d+.*0\.5"):
        check_policy(counts_query(4.0), policy, DELTA)


def test_backbones_are_allowed_by_name_or_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipped, "WEIGHTS", tmp_path)
    (tmp_path / "small.safetensors").write_bytes(b"weights")
    backbone = shipped.shipped_backbones()["small"]
    naming(monkeypatch, (backbone,), (backbone,))
    with pytest.raises(PolicyDenied, match=rf'backbone {backbone}: .* \[\.\.\., "small"\] under \[policy\]'):
        check_policy(counts_query(5.0), ALLOWED, DELTA)
    for name in ("small", backbone):
        check_policy(counts_query(5.0), ALLOWED.model_copy(update={"backbones": (name,)}), DELTA)
    with pytest.raises(PolicyDenied, match=backbone):
        check_policy(counts_query(5.0), ALLOWED.model_copy(update={"backbones": ("0" * 64,)}), DELTA)


def test_misspelt_backbone_is_a_config_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipped, "WEIGHTS", tmp_path)
    with pytest.raises(ConfigError, match=r"policy\.backbones: unknown small; shipped are none"):
        check_names(PolicySection(backbones=("small", "0" * 64)), ())
    (tmp_path / "small.safetensors").touch()
    check_names(PolicySection(backbones=("small", "0" * 64)), ())


def test_misspelt_mechanism_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match=r"unknown class_count; known are class_counts, mixtures"):
        check_names(PolicySection(mechanisms=("class_count",)), ("mixtures", "class_counts"))


def test_over_budget_says_requested_remaining_and_what_fits() -> None:
    budget, spent = BudgetSection(epsilon=1.0, delta=DELTA), (SampledGaussian(6.0),)
    with pytest.raises(BudgetExhausted) as refused:
        check_budget(SampledGaussian(3.0), spent, budget)
    message = str(refused.value)
    figures = re.search(r"epsilon = (\S+) of 1 .*; remaining: (\S+), .* multiplier of (\S+) instead", message)
    assert figures is not None
    requested, remaining, fitting = map(float, figures.groups())
    assert requested == pytest.approx(accounting.epsilon([SampledGaussian(6.0), SampledGaussian(3.0)], DELTA), rel=1e-3)
    assert remaining == pytest.approx(1.0 - accounting.epsilon(spent, DELTA), rel=1e-3)
    check_budget(SampledGaussian(fitting), spent, budget)
    with pytest.raises(BudgetExhausted):
        check_budget(SampledGaussian(fitting * 0.99), spent, budget)


def test_when_nothing_is_left_nothing_fits() -> None:
    noise = accounting.calibrate(lambda z: [SampledGaussian(z)], 1.0, DELTA)
    epsilon = accounting.epsilon([SampledGaussian(noise)], DELTA)
    with pytest.raises(BudgetExhausted, match=r"; remaining: 0, for which no noise multiplier"):
        check_budget(SampledGaussian(50.0), (SampledGaussian(noise),), BudgetSection(epsilon=epsilon, delta=DELTA))


def test_no_noise_needs_an_infinite_budget() -> None:
    check_budget(SampledGaussian(0.0), (), BudgetSection(epsilon=math.inf, delta=DELTA))
    with pytest.raises(BudgetExhausted, match=r"epsilon = inf of 1e\+06"):
        check_budget(SampledGaussian(0.0), (), BudgetSection(epsilon=1e6, delta=DELTA))
