"""Group normalization whose gradients of single records stay one kernel: `vmap` takes it apart, at twice the cost.

Each record of a batch has gradients of scale and shift of its own. So the channels of all of them are taken as the
channels of one big record, each of which has its scale and its shift.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn

Dims = tuple[int | None, ...]


def with_fused_norms(network: nn.Module) -> nn.Module:
    """A copy, for `vmap` over records (each a batch of one) with the same weights for all, and one derivative."""
    fused = copy.deepcopy(network)
    for parent in list(fused.modules()):
        for name, layer in parent.named_children():
            if isinstance(layer, nn.GroupNorm) and layer.affine:
                setattr(parent, name, _FusedNorm(layer))
    return fused


class _FusedNorm(nn.Module):
    def __init__(self, norm: nn.GroupNorm) -> None:
        super().__init__()
        self.weight, self.bias, self.groups, self.eps = norm.weight, norm.bias, norm.num_groups, norm.eps

    def forward(self, maps: Tensor) -> Tensor:
        return _normalize(maps, self.weight, self.bias, self.groups, self.eps)[0]


class _Normalize(torch.autograd.Function):
    @staticmethod
    def forward(maps: Tensor, weight: Tensor, bias: Tensor, groups: int, eps: float) -> tuple[Tensor, Tensor, Tensor]:
        return torch.native_group_norm(maps, weight, bias, *_sizes(maps), groups, eps)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
        maps, weight, _, ctx.groups, _ = inputs
        _, means, inverse_deviations = output
        ctx.mark_non_differentiable(means, inverse_deviations)
        ctx.save_for_backward(maps, means, inverse_deviations, weight)

    @staticmethod
    def backward(ctx: Any, slope: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        return (*_backward(slope, *ctx.saved_tensors, ctx.groups), None, None)

    @staticmethod
    def vmap(info: Any, dims: Dims, maps: Tensor, *others: Any) -> tuple[tuple[Tensor, ...], Dims]:
        found = _normalize(_records_first(maps, dims[0], info).flatten(0, 1), *others)
        return tuple(part.unsqueeze(1) for part in found), (0, 0, 0)


class _Backward(torch.autograd.Function):
    @staticmethod
    def forward(
        slope: Tensor, maps: Tensor, means: Tensor, inverse_deviations: Tensor, weight: Tensor, groups: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        saved = (slope.contiguous(), maps.contiguous(), means, inverse_deviations, weight)
        found = torch.ops.aten.native_group_norm_backward(*saved, *_sizes(maps), groups, [True, True, True])
        return cast(tuple[Tensor, Tensor, Tensor], found)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
        """Nothing is kept: there is no second derivative."""

    @staticmethod
    def vmap(info: Any, dims: Dims, *inputs: Any) -> tuple[tuple[Tensor, ...], Dims]:
        *batched, weight, groups = inputs
        maps, *others = (_records_first(part, dim, info) for part, dim in zip(batched, dims[:4], strict=True))
        as_one = [part.reshape(1, -1, *part.shape[3:]) for part in (maps, *others)]
        slope, *slopes = _backward(*as_one, weight.repeat(info.batch_size), groups * info.batch_size)
        return (slope.view(maps.shape), *(part.view(info.batch_size, -1) for part in slopes)), (0, 0, 0)


_normalize: Callable[..., tuple[Tensor, ...]] = _Normalize.apply
_backward: Callable[..., tuple[Tensor, ...]] = _Backward.apply


def _records_first(part: Tensor, dim: int | None, info: Any) -> Tensor:
    return part.expand(info.batch_size, *part.shape) if dim is None else part.movedim(dim, 0)


def _sizes(maps: Tensor) -> tuple[int, int, int]:
    """Records, channels, and places of a map."""
    return maps.shape[0], maps.shape[1], maps[0, 0].numel()
