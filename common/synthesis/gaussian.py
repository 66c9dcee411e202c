"""Gaussians from noisy moments, and how far a synthetic one is from its target. Batched over all leading axes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

SMALLEST_JITTER = 1e-2  # of the mean variance: a covariance of few samples is singular, and so may be an exact one


@dataclass(frozen=True)
class Gaussians:
    """Targets of the KL divergence, with what it needs of them computed once."""

    mean: Tensor  # (..., D)
    covariance: Tensor  # (..., D, D), positive definite
    jitter: Tensor  # (...), already part of the covariance, owed to whatever is compared with it
    log_determinant: Tensor  # (...)

    @classmethod
    def from_moments(cls, first: Tensor, second: Tensor, gamma: float) -> Self:
        """From noisy means and noisy means of outer products (Algorithm 3 of the SPS paper).

        Noise pushes the smallest eigenvalues below zero, about as far as it pushes all others astray. They are cut at
        zero, and gamma times the depth of the lowest is added to all: what is smaller than that is noise.
        """
        covariance = covariance_of(first.double(), second.double())
        values, vectors = torch.linalg.eigh(covariance)
        clipped = values.clamp(min=0)
        tiny = SMALLEST_JITTER * clipped.mean(-1).clamp(min=torch.finfo(torch.float32).eps)
        jitter = torch.maximum(gamma * (-values[..., 0]).clamp(min=0), tiny)
        lifted = clipped + jitter[..., None]
        repaired = (vectors * lifted[..., None, :]) @ vectors.mT
        return cls(first.float(), repaired.float(), jitter.float(), lifted.log().sum(-1).float())

    def to(self, device: torch.device) -> Gaussians:
        return Gaussians(*(tensor.to(device) for tensor in vars(self).values()))

    def divergence(self, first: Tensor, second: Tensor) -> Tensor:
        """KL(self || the Gaussian of these moments), differentiable in the moments."""
        covariance = covariance_of(first, second)
        lifted = covariance + torch.diag_embed(self.jitter[..., None].expand_as(first))
        return kl_divergence(self.mean, self.covariance, self.log_determinant, first, lifted)


def covariance_of(first: Tensor, second: Tensor) -> Tensor:
    return second - first[..., :, None] * first[..., None, :]


def kl_divergence(
    target_mean: Tensor, target_covariance: Tensor, target_log_determinant: Tensor, mean: Tensor, covariance: Tensor
) -> Tensor:
    """KL(target || N(mean, covariance)), differentiable in mean and covariance."""
    result: Tensor = _Divergence.apply(  # type: ignore[no-untyped-call]
        target_mean, target_covariance, target_log_determinant, mean, covariance
    )
    return result


class _Divergence(torch.autograd.Function):
    """With P the inverse of the synthetic covariance, d the difference of the means and A = target covariance + d d^T:

    2 KL = tr(P A) - D + log det covariance - log det target;  dKL/dmean = P d;  2 dKL/dcovariance = P - P A P.
    One factorization gives value and gradient; differentiating through it would cost several times as much.
    """

    @staticmethod
    def forward(
        ctx: Any,
        target_mean: Tensor,
        target_covariance: Tensor,
        target_log_determinant: Tensor,
        mean: Tensor,
        covariance: Tensor,
    ) -> Tensor:
        factor = torch.linalg.cholesky(covariance)
        inverse = torch.cholesky_inverse(factor)
        difference = mean - target_mean
        scatter = target_covariance + difference[..., :, None] * difference[..., None, :]
        product = inverse @ scatter
        ctx.save_for_backward(inverse, product, difference)
        trace = product.diagonal(dim1=-2, dim2=-1).sum(-1)
        log_determinant = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        doubled: Tensor = trace - mean.shape[-1] + log_determinant - target_log_determinant
        return doubled / 2

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        inverse, product, difference = ctx.saved_tensors
        (scale,) = gradients
        of_mean = scale[..., None] * (inverse @ difference[..., None])[..., 0]
        of_covariance = scale[..., None, None] * (inverse - product @ inverse) / 2
        return None, None, None, of_mean, of_covariance
