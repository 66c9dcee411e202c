"""One reading of a network's activations: which layers, how projected, in which groups, around which centre."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from silosynth.common.procedural.dice import Dice
from silosynth.common.statistics import triangles
from silosynth.common.statistics.groups import Groups
from silosynth.common.statistics.layer import Center, LayerMoments, layer_moments


@dataclass(frozen=True)
class ReadingCenter:
    """Moments around which each pseudo-class is clipped, and what follows from them for a record of a class.

    A record adds v - c_p to all k pseudo-classes p that hold its class. With m the mean of these c_p, which is rounded
    to single precision, sum |v - c_p|^2 = k |v - m|^2 + sum |m - c_p|^2, and no large numbers cancel.
    """

    mean: Tensor  # (pseudo-classes, layers, D)
    second: Tensor  # (pseudo-classes, layers, D, D)
    class_mean: Tensor  # (classes, layers, D)
    class_second: Tensor  # (classes, layers, D, D)
    spread: Tensor  # (classes,), sum |m - c_p|^2

    @classmethod
    def of(cls, mean: Tensor, second: Tensor, membership: Tensor) -> ReadingCenter:
        shares = (membership / membership.sum(0)).T
        class_mean, class_second = (_combined(shares, part) for part in (mean, second))
        whole, middle = _squared_norm(mean, second), _squared_norm(class_mean, class_second)
        spread = (membership.T @ whole - membership.sum(0) * middle).clamp(min=0)
        return cls(mean, second, class_mean.float().double(), class_second.float().double(), spread)

    def of_layer(self, layer: int) -> Center:
        return Center(self.class_mean[:, layer], self.class_second[:, layer])


class MomentsOfLayer(Protocol):
    """Of every record of a batch."""

    def squared_norms(self) -> Tensor: ...


class Reading:
    """Moments of the last layers by pseudo-class, each times `scale`."""

    def __init__(
        self, projections: list[Tensor], membership: Tensor, scale: float, center: tuple[Tensor, Tensor] | None
    ) -> None:
        self._projections = projections
        self.membership = membership
        self._scale = scale
        self._center = None if center is None else ReadingCenter.of(*center, membership)

    def activations(self, taps: list[Tensor]) -> list[Tensor]:
        last = taps[len(taps) - len(self._projections) :]
        return [squashed(tap, projection) for tap, projection in zip(last, self._projections, strict=True)]

    def layers(self, activations: list[Tensor], groups: Groups) -> list[LayerMoments]:
        return [layer_moments(layer, groups, self.layer_center(number)) for number, layer in enumerate(activations)]

    def squared_norms(self, layers: Sequence[MomentsOfLayer], groups: Groups) -> Tensor:
        """Of what each record adds to all pseudo-classes together."""
        norms = torch.stack([layer.squared_norms() for layer in layers]).sum(0) * self.membership.sum(0)[groups.labels]
        if self._center is not None:
            norms = norms + self._center.spread[groups.labels]
        return norms * self._scale**2

    def sums(self, layers: list[LayerMoments], groups: Groups, weights: Tensor) -> tuple[Tensor, Tensor]:
        """(pseudo-classes, layers, D) and (pseudo-classes, layers, D, D)."""
        means, seconds = zip(*(layer.sums(weights) for layer in layers), strict=True)
        mean, second = torch.stack(means, 1), torch.stack(seconds, 1)
        totals = groups.matrix(weights).sum(1)
        if self._center is not None:
            mean = mean + _times(totals, self._center.class_mean)
            second = second + _times(totals, self._center.class_second)
        return self.around_centers(*(_combined(self.membership, part) for part in (mean, second, totals)))

    def around_centers(self, mean: Tensor, second: Tensor, totals: Tensor) -> tuple[Tensor, Tensor]:
        """From sums by pseudo-class, and the total weights of their records, to those around its own centre."""
        mean, second = self._scale * mean, self._scale * second
        if self._center is None:
            return mean, second
        weights = self._scale * totals
        return mean - _times(weights, self._center.mean), second - _times(weights, self._center.second)

    def layer_center(self, layer: int) -> Center | None:
        """Of each class."""
        return None if self._center is None else self._center.of_layer(layer)


def squashed(tap: Tensor, projection: Tensor) -> Tensor:
    """2 sigmoid(x) - 1 of the projected channels: (batch, positions, D)."""
    projected: Tensor = tap.flatten(2).mT @ (projection.T / 2)
    return projected.tanh_()


def projection(seed: int, reading: int, layer: int, dimension: int, channels: int) -> Tensor:
    """Entries N(0, 1 / channels), the same for everyone who knows the seed."""
    drawn: Tensor = Dice(seed, reading, layer).normal(dimension, channels) / channels**0.5
    return drawn


def _combined(shares: Tensor, tensors: Tensor) -> Tensor:
    """Sums of tensors (old groups, ...) to tensors (new groups, ...)."""
    return (shares @ tensors.reshape(len(tensors), -1)).view(-1, *tensors.shape[1:])


def _times(factors: Tensor, tensors: Tensor) -> Tensor:
    """Every group's tensor times its factor."""
    return (factors[:, None] * tensors.flatten(1)).view_as(tensors)


def _squared_norm(mean: Tensor, second: Tensor) -> Tensor:
    """Over all layers, by group."""
    return mean.square().sum((1, 2)) + triangles.squared_norm(second).sum(1)
