"""Gaussians of noisy moments, and the divergence between them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal
from torch.distributions.kl import kl_divergence as reference

from silosynth.common.synthesis.gaussian import Gaussians, covariance_of, kl_divergence


def moments(*shape: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """First and second moments of a batch of (..., samples, D)."""
    samples = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 0.3
    return samples.mean(-2), samples.mT @ samples / samples.shape[-2]


def divergence(target: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor]) -> Tensor:
    mean, covariance = target[0], covariance_of(*target)
    return kl_divergence(mean, covariance, torch.logdet(covariance), other[0], covariance_of(*other))


def test_no_divergence_from_itself() -> None:
    p = moments(3, 50, 6)
    torch.testing.assert_close(divergence(p, p), torch.zeros(3, dtype=torch.float64), atol=1e-12, rtol=0)


def test_it_is_what_torch_computes() -> None:
    p, q = moments(4, 60, 7), moments(4, 60, 7, seed=1)
    expected = reference(*(MultivariateNormal(first, covariance_of(first, second)) for first, second in (p, q)))
    torch.testing.assert_close(divergence(p, q), expected)


def test_its_gradient_is_right() -> None:
    first, second = (tensor.requires_grad_(True) for tensor in moments(2, 40, 4, seed=1))
    target = moments(2, 40, 4)

    def of_symmetric(first: Tensor, second: Tensor) -> Tensor:
        return divergence(target, (first, (second + second.mT) / 2))

    assert torch.autograd.gradcheck(of_symmetric, (first, second))


class TestRepair:
    def noisy(self, scale: float) -> tuple[Tensor, Tensor]:
        first, second = moments(5, 200, 12)
        noise = torch.randn(second.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64) * scale
        return first, second + (noise + noise.mT) / 2

    def test_exact_moments_are_hardly_touched(self) -> None:
        first, second = self.noisy(0)
        target = Gaussians.from_moments(first, second, gamma=2)
        torch.testing.assert_close(target.covariance.double(), covariance_of(first, second), atol=2e-2, rtol=0)
        torch.testing.assert_close(target.divergence(first.float(), second.float()), torch.zeros(5), atol=1e-5, rtol=0)

    def test_jitter_is_gamma_times_the_depth_of_the_lowest_eigenvalue(self) -> None:
        first, second = self.noisy(2.0)
        lowest = torch.linalg.eigvalsh(covariance_of(first, second))[:, 0]
        assert (lowest < 0).all()
        target = Gaussians.from_moments(first, second, gamma=2)
        torch.testing.assert_close(target.jitter, (-2 * lowest).float())
        torch.testing.assert_close(torch.linalg.eigvalsh(target.covariance)[:, 0], target.jitter, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(target.log_determinant, torch.logdet(target.covariance))

    @pytest.mark.parametrize("samples", [1, 3])
    def test_a_synthetic_set_of_few_samples_has_finite_gradients(self, samples: int) -> None:
        target = Gaussians.from_moments(*self.noisy(0), gamma=2)
        images = torch.randn(5, samples, 12, generator=torch.Generator().manual_seed(3)).requires_grad_(True)
        loss = target.divergence(images.mean(1), images.mT @ images / samples).sum()
        (gradient,) = torch.autograd.grad(loss, images)
        assert loss > 0
        assert torch.isfinite(gradient).all()

    def test_no_records_at_all(self) -> None:
        target = Gaussians.from_moments(torch.zeros(4), torch.zeros(4, 4), gamma=2)
        assert torch.isfinite(target.divergence(torch.ones(4), 2 * torch.eye(4) + 1))
