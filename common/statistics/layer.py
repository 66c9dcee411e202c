"""The moments of every record of a batch at one layer: how long they are, and their weighted sums.

The second moment of a record is D x D, its activations are positions x D. Where the matrix is not much larger than
the activations, it is computed for every record, in single precision. Where it is, no such matrix is made ("ghost
clipping"): lengths follow from positions x positions Gram matrices, sums are one product over all positions of the
batch. Around a centre those lengths are small differences of large numbers, so that is done in double precision.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from silosynth.common.statistics.groups import Groups


class Center(NamedTuple):
    """What is subtracted from the moments of a record, by group."""

    mean: Tensor  # (groups, D)
    second: Tensor  # (groups, D, D), symmetric


class FullMoments:
    """Of activations (batch, positions, D) with these means.

    A record's moments are what they were rounded to here, the second one made symmetric.
    """

    def __init__(self, activations: Tensor, mean: Tensor, groups: Groups, center: Center | None) -> None:
        self._groups = groups
        share = 1 / activations.shape[1]
        if center is None:
            nothing = activations.new_zeros(1, 1, 1)
            self._mean = mean
            self._second = torch.baddbmm(nothing, activations.mT, activations, beta=0, alpha=share)
        else:
            around = center.second.float()[groups.labels]
            self._mean = mean - center.mean.float()[groups.labels]
            self._second = torch.baddbmm(around, activations.mT, activations, beta=-1, alpha=share)

    def squared_norms(self) -> Tensor:
        return squared_norms(self._mean, self._second)

    def sums(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """(groups, D) and (groups, D, D)."""
        matrix = self._groups.matrix(weights).float()
        second = (matrix @ self._second.flatten(1)).view(-1, *self._second.shape[1:]).double()
        return (matrix @ self._mean).double(), (second + second.mT) / 2


class GramMoments:
    """The same without a matrix for each record."""

    def __init__(self, activations: Tensor, mean: Tensor, groups: Groups, center: Center | None) -> None:
        self._groups, self._center = groups, center
        self._order, self._places = groups.sorted()
        self._activations = activations.double()[self._order]
        self._mean = mean.double()[self._order]
        self._positions = activations.shape[1]

    def squared_norms(self) -> Tensor:
        """The triangle's is half that of the whole and half that of the diagonal."""
        gram = self._activations @ self._activations.mT
        mean, diagonal = self._mean, self._activations.square().mean(1)
        whole = gram.square().sum((1, 2)) / self._positions**2
        if self._center is not None:
            labels = self._groups.labels[self._order]
            mean = mean - self._center.mean[labels]
            diagonal = diagonal - self._center.second.diagonal(dim1=1, dim2=2)[labels]
            whole = whole - 2 * self._products() + self._center.second.square().sum((1, 2))[labels]
        norms = mean.square().sum(1) + (whole.clamp(min=0) + diagonal.square().sum(1)) / 2
        return norms[torch.argsort(self._order)]

    def sums(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """(groups, D) and (groups, D, D)."""
        found = [self._group_sums(group, place, weights[self._order[place]]) for group, place in self._places]
        means, seconds = zip(*found, strict=True)
        return self._placed(means), self._placed(seconds)

    def _placed(self, found: tuple[Tensor, ...]) -> Tensor:
        """All groups, also those without records."""
        groups = torch.tensor([group for group, _ in self._places], device=found[0].device)
        return found[0].new_zeros(self._groups.count, *found[0].shape).index_copy(0, groups, torch.stack(found))

    def _group_sums(self, group: int, place: slice, weights: Tensor) -> tuple[Tensor, Tensor]:
        part = self._activations[place]
        weighted = part * (weights / self._positions)[:, None, None]
        mean, second = weights @ self._mean[place], weighted.flatten(0, 1).T @ part.flatten(0, 1)
        if self._center is None:
            return mean, second
        total = weights.sum()
        return mean - total * self._center.mean[group], second - total * self._center.second[group]

    def _products(self) -> Tensor:
        """<second moment, centre's> of each record, in this order."""
        assert self._center is not None
        parts = [(self._activations[place], self._center.second[group]) for group, place in self._places]
        return torch.cat([((part @ center) * part).sum((1, 2)) for part, center in parts]) / self._positions


LayerMoments = FullMoments | GramMoments


def squared_norms(mean: Tensor, second: Tensor) -> Tensor:
    """Of means (batch, D) with triangles of (batch, D, D), row by row: rounding errors of a sum grow with its terms."""
    whole: Tensor = torch.linalg.vector_norm(second, dim=2).square().sum(1)
    diagonal = second.diagonal(dim1=1, dim2=2).square().sum(1)
    return (mean.square().sum(1) + (whole + diagonal) / 2).double()


def layer_moments(activations: Tensor, groups: Groups, center: Center | None) -> LayerMoments:
    """Of activations (batch, positions, D) in [-1, 1].

    What is no number, because weights make activations overflow, counts as 0. A matrix for each record serves while it
    is at most four times the size of the record's activations: single precision makes up for that.
    """
    mean = activations.mean(1)
    if mean.isnan().any():
        activations = activations.nan_to_num(nan=0.0)
        mean = activations.mean(1)
    kind = FullMoments if activations.shape[2] <= 4 * activations.shape[1] else GramMoments
    return kind(activations, mean, groups, center)
