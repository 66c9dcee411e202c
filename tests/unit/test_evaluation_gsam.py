"""GSAM: what it reduces to, and one step by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.optim import SGD, Optimizer

from silosynth.server.evaluation.gsam import Gsam

CURVATURE = torch.tensor([4.0, 1.0])


def bowl(weights: Tensor) -> Callable[[], float]:
    """The gradient is CURVATURE * weights."""

    def closure() -> float:
        weights.grad = CURVATURE * weights.detach()
        return 0.0

    return closure


def start() -> Tensor:
    return torch.tensor([1.0, 2.0], requires_grad=True)


def walk(weights: Tensor, optimizer: Optimizer | Gsam, steps: int) -> Tensor:
    for _ in range(steps):
        optimizer.step(bowl(weights))
    return weights.detach()


@pytest.mark.parametrize("alpha", [0.0, 0.4])
def test_without_reach_it_is_the_base_optimizer(alpha: float) -> None:
    plain, wrapped = start(), start()
    base = SGD([wrapped], lr=0.1, momentum=0.9)
    expected = walk(plain, SGD([plain], lr=0.1, momentum=0.9), 5)
    torch.testing.assert_close(walk(wrapped, Gsam(base, rho=(0.0, 0.0), alpha=alpha), 5), expected)


def test_one_step_by_hand() -> None:
    weights = start()
    here = CURVATURE * weights.detach()
    there = CURVATURE * (weights.detach() + 0.5 * here / here.norm())
    across = here - (here @ there) / (there @ there) * there
    expected = weights.detach() - 0.1 * (there - 0.3 * across)
    walk(weights, Gsam(SGD([weights], lr=0.1), rho=(0.5, 0.5), alpha=0.3), 1)
    torch.testing.assert_close(weights.detach(), expected)
    assert abs(float(across @ there)) < 1e-5


def test_the_reach_follows_the_learning_rate() -> None:
    """At a tenth of the rate: a tenth of the way from the least to the most."""
    weights, other = start(), start()
    base = SGD([weights], lr=0.1)
    falling = Gsam(base, rho=(0.2, 1.2), alpha=0.0)
    base.param_groups[0]["lr"] = 0.01
    fixed = Gsam(SGD([other], lr=0.01), rho=(0.3, 0.3), alpha=0.0)
    torch.testing.assert_close(walk(weights, falling, 1), walk(other, fixed, 1))


def test_parameters_without_gradient_stay() -> None:
    weights, unused = start(), torch.ones(3, requires_grad=True)
    walk(weights, Gsam(SGD([weights, unused], lr=0.1), rho=(0.1, 0.1), alpha=0.1), 2)
    assert torch.equal(unused.detach(), torch.ones(3))


def test_a_flat_place_is_left_in_peace() -> None:
    weights = torch.zeros(2, requires_grad=True)
    assert torch.equal(walk(weights, Gsam(SGD([weights], lr=0.1), rho=(0.1, 0.1), alpha=0.1), 3), torch.zeros(2))
