"""Symmetric matrices as their upper triangles, row by row."""

from __future__ import annotations

import torch
from torch import Tensor


def pack(matrices: Tensor) -> Tensor:
    """(..., D, D) to (..., D (D + 1) / 2)."""
    rows, columns = _indices(matrices.shape[-1], matrices.device)
    return matrices[..., rows, columns]


def unpack(triangles: Tensor, dimension: int) -> Tensor:
    """The opposite of `pack`."""
    rows, columns = _indices(dimension, triangles.device)
    matrices = triangles.new_zeros(*triangles.shape[:-1], dimension, dimension)
    matrices[..., rows, columns] = triangles
    matrices[..., columns, rows] = triangles
    return matrices


def squared_norm(matrices: Tensor) -> Tensor:
    """Of the triangles of symmetric matrices."""
    diagonal = matrices.diagonal(dim1=-2, dim2=-1)
    return (matrices.square().sum((-2, -1)) + diagonal.square().sum(-1)) / 2


def _indices(dimension: int, device: torch.device) -> tuple[Tensor, Tensor]:
    rows, columns = torch.triu_indices(dimension, dimension, device=device)
    return rows, columns
