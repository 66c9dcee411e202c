"""The statistics of SPS and SPS+, of private images at a silo and of synthetic ones wherever they are made.

Differentiable in the images: synthetic statistics are matched with private ones, and clipped as these are.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from silosynth.common.backbones import Backbone
from silosynth.common.errors import QueryError
from silosynth.common.queries import Moments
from silosynth.common.statistics.groups import Groups, membership
from silosynth.common.statistics.reading import Reading, projection

_GLOBAL, _CLASS = 0, 1  # streams of a seed


class Statistics(NamedTuple):
    """First and second moments, or sums of them, in double precision."""

    means: Tensor  # (L, D_G)
    seconds: Tensor  # (L, D_G, D_G)
    class_means: Tensor  # (groups, |L_C|, D_C)
    class_seconds: Tensor  # (groups, |L_C|, D_C, D_C)


class MomentStatistics:
    """What a `Moments` query asks of images, seen through its backbone; computed where the backbone is."""

    def __init__(self, query: Moments, backbone: Backbone, center: Statistics | None = None) -> None:
        height, width, channels = query.schema.shape
        try:
            shapes = backbone.tap_shapes(height, width)
        except RuntimeError:
            raise QueryError(
                f"the backbone cannot look at images of {height}x{width}: use one for such images"
            ) from None
        if len(shapes) != query.layers:
            raise QueryError(f"the backbone has {len(shapes)} layers, the query is for one of {query.layers}")
        if channels not in (1, backbone.blueprint.channels):
            raise QueryError(f"the backbone takes {backbone.blueprint.channels} channels, the records have {channels}")
        self.query = query
        self.shapes = shapes
        self._backbone = backbone
        self._center = None if center is None else Statistics(*(part.to(self.device) for part in center))
        self._membership = membership(
            query.schema.classes, query.pseudo_classes, query.classes_per_pseudo_class, query.seed
        ).to(self.device)
        self._global, self._class = self._make_readings()

    @property
    def readings(self) -> tuple[Reading, Reading]:
        """Of all layers, in one group; and of the last ones, by class."""
        return self._global, self._class

    def activations(self, images: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """As each reading has them."""
        taps = self._backbone.forward_taps(images)
        return self._global.activations(taps), self._class.activations(taps)

    def groups(self, labels: Tensor) -> tuple[Groups, Groups]:
        """As each reading takes them."""
        return Groups(torch.zeros_like(labels), 1), Groups(labels, self.query.schema.classes)

    def clipped_sums(self, images: Tensor, labels: Tensor, shares: Tensor | None = None) -> Statistics:
        """Of clip(v - center), times the images' shares if there are such, in the units of a release."""
        return self._sums(images, labels, shares, self.query.bound)

    def clipped_means(self, images: Tensor, labels: Tensor) -> Statistics:
        """Comparable with `estimate` of a release."""
        return self.estimate(self.clipped_sums(images, labels), self._counts(labels))

    def means(self, images: Tensor, labels: Tensor) -> Statistics:
        """Without clipping: the centre that the next stage of SPS+ takes from synthetic images."""
        return self.estimate(self._sums(images, labels, None, math.inf), self._counts(labels))

    def estimate(self, sums: Statistics, counts: Tensor) -> Statistics:
        """Means of all records and by group, from clipped sums and the (noisy) number of records of each class."""
        total = counts.sum().clamp(min=1)
        by_group = (self._membership @ counts.to(self._membership)).clamp(min=1) * self.query.class_scale
        found = Statistics(
            sums.means / total,
            sums.seconds / total,
            sums.class_means / by_group[:, None, None],
            sums.class_seconds / by_group[:, None, None, None],
        )
        if self._center is None:
            return found
        return Statistics(*(part + middle.to(part) for part, middle in zip(found, self._center, strict=True)))

    @property
    def membership(self) -> Tensor:
        """(groups, classes), 1 where a pseudo-class holds a class."""
        return self._membership

    @property
    def positions(self) -> list[int]:
        """Of each layer."""
        return [math.prod(shape[1:]) for shape in self.shapes]

    @property
    def values_per_image(self) -> int:
        """Activations before and after projection: what memory the statistics of a batch take grows with it."""
        taps = sum(math.prod(shape) for shape in self.shapes)
        projected = self.query.global_dimension * sum(self.positions)
        return taps + projected + self.query.class_dimension * sum(self.positions[-self.query.class_layers :])

    def _sums(self, images: Tensor, labels: Tensor, shares: Tensor | None, bound: float) -> Statistics:
        everyone, classes = self.groups(labels)
        seen, seen_by_class = self.activations(images)
        overall, by_class = self._global.layers(seen, everyone), self._class.layers(seen_by_class, classes)
        norms = self._global.squared_norms(overall, everyone) + self._class.squared_norms(by_class, classes)
        weights = torch.ones_like(norms) if math.isinf(bound) else bound / norms.clamp(min=bound**2).sqrt()
        if shares is not None:
            weights = weights * shares
        means, seconds = self._global.sums(overall, everyone, weights)
        return Statistics(means[0], seconds[0], *self._class.sums(by_class, classes, weights))

    def _counts(self, labels: Tensor) -> Tensor:
        return torch.bincount(labels, minlength=self.query.schema.classes).double()

    def _make_readings(self) -> tuple[Reading, Reading]:
        query, center, device = self.query, self._center, self.device
        channels = [shape[0] for shape in self.shapes]

        def projections(reading: int, dimension: int, layers: int) -> list[Tensor]:
            numbers = range(query.layers - layers, query.layers)
            return [projection(query.seed, reading, layer, dimension, channels[layer]).to(device) for layer in numbers]

        return (
            Reading(
                projections(_GLOBAL, query.global_dimension, query.layers),
                torch.ones_like(self._membership[:1, :1]),
                1.0,
                None if center is None else (center.means[None], center.seconds[None]),
            ),
            Reading(
                projections(_CLASS, query.class_dimension, query.class_layers),
                self._membership,
                query.class_scale,
                None if center is None else (center.class_means, center.class_seconds),
            ),
        )

    @property
    def device(self) -> torch.device:
        return self._backbone.device
