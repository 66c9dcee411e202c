"""Projection onto principal components of public features (Dosser's subspace for error reduction, SER)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Projection:
    """Features become basis^T (features - center)."""

    center: Tensor
    basis: Tensor  # orthonormal columns, largest variance first

    def __call__(self, features: Tensor) -> Tensor:
        return (features - self.center) @ self.basis

    def to(self, device: torch.device) -> Projection:
        return Projection(self.center.to(device), self.basis.to(device))


def principal_components(features: Tensor, dimension: int) -> Projection:
    """Of public features. Server and silo come to nearly the same basis on different machines.

    Eigenvectors have no sign of their own, so the largest entry of each is made positive. They are sensitive to
    rounding, hence double precision; that of the features turns the smaller ones by far less than the noise does.
    Features without finite numbers, as a hostile server's weights may compute them, count as zeros.
    """
    finite = features.isfinite().all(dim=1, keepdim=True)
    exact = features.where(finite, 0.0).double()
    center = exact.mean(dim=0)
    centered = exact - center
    _, vectors = torch.linalg.eigh(centered.T @ centered)
    basis = vectors.flip(1)[:, :dimension]
    largest = basis.gather(0, basis.abs().argmax(dim=0, keepdim=True))
    return Projection(center.to(features.dtype), (basis * largest.sign()).to(features.dtype))
