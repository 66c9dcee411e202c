"""Surrogate gap guided sharpness-aware minimization (GSAM) around any optimizer.

Zhuang et al., "Surrogate gap minimization improves sharpness-aware training" (2022). Each step asks for the gradient
twice: here, and where the loss is worst within `rho`. It follows the latter, less `alpha` times the part of the former
that is orthogonal to it: that lowers the loss around here without lifting the loss here.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

_SMALLEST = 1e-12


class Gsam:
    """`rho` goes from its second value to its first in step with the learning rate (the paper's proportional rho)."""

    def __init__(self, base: torch.optim.Optimizer, *, rho: tuple[float, float], alpha: float) -> None:
        self._base, self._rho, self._alpha = base, rho, alpha
        self._full_rate: float = base.param_groups[0]["lr"]
        self._parameters: list[Tensor] = [weight for group in base.param_groups for weight in group["params"]]

    @torch.no_grad()
    def step(self, closure: Callable[[], float]) -> None:
        """`closure` sets the gradients of one batch, whatever the weights are, and returns its loss."""
        before = [parameter.clone() for parameter in self._parameters]
        here = self._gradients(closure)
        reach = self._reach() / (_norm(here) + _SMALLEST)
        for parameter, gradient in zip(self._parameters, here, strict=True):
            parameter.add_(gradient, alpha=reach)
        there = self._gradients(closure)
        along = _dot(here, there) / (_dot(there, there) + _SMALLEST)
        for parameter, old, near, far in zip(self._parameters, before, here, there, strict=True):
            parameter.copy_(old)
            parameter.grad = far - self._alpha * (near - along * far)
        self._base.step()

    def _reach(self) -> float:
        least, most = self._rho
        rate: float = self._base.param_groups[0]["lr"]
        return least + (most - least) * rate / self._full_rate

    def _gradients(self, closure: Callable[[], float]) -> list[Tensor]:
        with torch.enable_grad():
            closure()
        return [
            torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()
            for parameter in self._parameters
        ]


def _dot(left: list[Tensor], right: list[Tensor]) -> float:
    return sum(float(torch.sum(one * other)) for one, other in zip(left, right, strict=True))


def _norm(tensors: list[Tensor]) -> float:
    return math.sqrt(_dot(tensors, tensors))
