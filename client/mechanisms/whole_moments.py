"""Moments of records in whole numbers, and their exact sums.

Activations in [-1, 1] are rounded to steps so wide that their products, summed over the positions of a layer, are whole
numbers which single precision holds: a record's moments depend on its activations alone. Factors that shorten moments
are cut to whole numbers of small steps as well, so that sums stay whole.

Where an activation is rounded up is drawn once for each position and channel: of an even background, which all records
may share, not every position is rounded the same way then. Means and products are right but for 1e-4; squares, which
cannot do without the variance of rounding, but for 6e-5 of images of 28x28, 8e-4 of 224x224.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from silosynth.common.statistics.groups import Groups
from silosynth.common.statistics.layer import Center, squared_norms
from silosynth.common.statistics.reading import Reading

LARGEST_BATCH = 128
MOST_POSITIONS = 1 << 20  # of a layer
FACTOR_STEP = 2.0**-16  # a batch's sum has 24 + 16 + 7 bits then: double precision holds it
_SINGLE_BITS = 24
_LOW = 2.0**26


class WholeMoments:
    """Of activations (batch, positions, D) at one layer, whose memory is used."""

    def __init__(self, activations: Tensor, classes: Tensor, center: Center | None, rounding: Tensor) -> None:
        self._classes, self._center = classes, center
        self._units = _units(activations.shape[1])
        whole = torch.add(rounding, activations, alpha=2 ** _bits(activations.shape[1]), out=activations).floor_()
        self._mean = whole.sum(1)
        if self._mean.isnan().any():  # weights made activations overflow: what is no number counts as 0
            self._mean = whole.nan_to_num_(nan=0.0).sum(1)
        self._second = whole.mT @ whole

    def squared_norms(self) -> Tensor:
        """Around the centre of each record's class, in whole numbers of the finer unit."""
        unit, fine = self._units
        mean, second = self._mean * (unit / fine), self._second
        if self._center is not None:
            mean = mean - (self._center.mean[self._classes] / fine).float()
            second = second - (self._center.second[self._classes] / fine).float()
        return squared_norms(mean, second) * fine**2

    def sums(self, factors: Tensor) -> tuple[Tensor, Tensor]:
        """(groups, D) and (groups, D, D), whole as the factors (groups, batch) are."""
        second = factors @ self._second.flatten(1).double()
        return factors @ self._mean.double(), second.view(-1, *self._second.shape[1:])


class Total:
    """A sum of whole numbers over any number of batches, in two halves: it may need more bits than 53."""

    def __init__(self, *shape: int) -> None:
        self._high, self._low = torch.zeros(shape, dtype=torch.int64), torch.zeros(shape, dtype=torch.int64)

    def add(self, sums: Tensor) -> None:
        high = (sums / _LOW).floor()
        self._high += high.long().cpu()
        self._low += (sums - high * _LOW).long().cpu()

    def times(self, unit: float, held: Tensor | None) -> Tensor:
        """In double precision; sums of those that each row of `held` marks, if there is such."""
        high, low = self._high, self._low
        if held is not None:
            high, low = ((held @ half.flatten(1)).view(-1, *half.shape[1:]) for half in (high, low))
        return (high.double() * _LOW + low.double()) * unit


class ReadingSums:
    """Of all layers of one reading, over any number of batches; `positions` are those of each layer.

    By class or by pseudo-class while they grow: whichever are fewer.
    """

    def __init__(self, reading: Reading, positions: list[int], size: int, device: torch.device) -> None:
        self._reading, self._device = reading, device
        self._chosen, self._held = reading.membership, None
        groups, classes = reading.membership.shape
        if groups > classes:
            self._chosen, self._held = torch.eye(classes).to(reading.membership), reading.membership.long().cpu()
        rows = len(self._chosen)
        self._rounding = [_rounding(count, size).to(device) for count in positions]
        self._means = [Total(rows, size) for _ in positions]
        self._seconds = [Total(rows, size, size) for _ in positions]
        self._units, self._factors = [_units(count) for count in positions], Total(rows, 1)

    def moments(self, activations: list[Tensor], groups: Groups) -> list[WholeMoments]:
        return [
            WholeMoments(layer, groups.labels, self._reading.layer_center(number), self._rounding[number])
            for number, layer in enumerate(activations)
        ]

    def add(self, layers: list[WholeMoments], groups: Groups, factors: Tensor) -> None:
        """Factors in steps."""
        shares = self._chosen[:, groups.labels] * factors
        for layer, *totals in zip(layers, self._means, self._seconds, strict=True):
            for total, found in zip(totals, layer.sums(shares), strict=True):
                total.add(found)
        self._factors.add(shares.sum(1, keepdim=True))

    def total(self) -> tuple[Tensor, Tensor]:
        """Means and second moments by pseudo-class, around its centre."""
        units, fine = zip(*self._units, strict=True)
        factors = self._factors.times(FACTOR_STEP, self._held)[:, 0]
        sums = self._layers(self._means, units), self._layers(self._seconds, fine), factors
        return self._reading.around_centers(*(part.to(self._device) for part in sums))

    def _layers(self, totals: list[Total], units: tuple[float, ...]) -> Tensor:
        """(groups, layers, ...)"""
        pairs = zip(totals, units, strict=True)
        return torch.stack([total.times(FACTOR_STEP * unit, self._held) for total, unit in pairs], dim=1)


def _rounding(positions: int, size: int) -> Tensor:
    """(positions, D), in [0, 1), with few digits: what is added to an activation of 1 must not lift it by a step."""
    return torch.randint(256, (positions, size), generator=torch.Generator().manual_seed(positions)) / 256


def _bits(positions: int) -> int:
    """Of an activation: half of what single precision has for the sum of its squares."""
    return (_SINGLE_BITS - math.ceil(math.log2(positions))) // 2


def _units(positions: int) -> tuple[float, float]:
    """What a step of mean and second moment is worth."""
    step = 2.0 ** -_bits(positions)
    return step / positions, step**2 / positions
