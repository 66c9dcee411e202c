"""One release of moments, summed over silos, as something that synthetic images can be compared with."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from silosynth.common.backbones import Backbone
from silosynth.common.queries import Moments, encode
from silosynth.common.statistics import MomentStatistics, Statistics, decode_center, split
from silosynth.common.synthesis.certainty import SMALLEST_SHARE, certainty, shares
from silosynth.common.synthesis.gaussian import Gaussians
from silosynth.common.synthesis.stage_release import Release


@dataclass(frozen=True)
class Stage:
    query: Moments
    center: Statistics | None
    layers: Gaussians  # (L, D_G)
    classes: Gaussians  # (groups, |L_C|, D_C)
    class_weights: Tensor  # (groups,), from 0 for a group of which nothing is known to 1
    shares: Tensor  # (classes,), of all records, times the number of classes

    @classmethod
    def of(cls, release: Release, backbone: Backbone, gamma: float) -> Self:
        """gamma is the paper's gamma_eig."""
        query = release.query
        assert isinstance(query, Moments)
        center = decode_center(release.center, query) if query.center else None
        statistics = MomentStatistics(query, backbone, center)
        sums, counts = split(release.values, query)
        means = statistics.estimate(sums, counts)
        count_noise = release.noise_std / (query.count_step() * query.grid())
        groups = statistics.membership
        return cls(
            query,
            center,
            Gaussians.from_moments(means.means, means.seconds, gamma),
            Gaussians.from_moments(means.class_means, means.class_seconds, gamma),
            certainty(groups @ counts, count_noise * groups.sum(1).sqrt()),
            shares(counts),
        )

    def measured(self, statistics: MomentStatistics, images: Tensor, labels: Tensor) -> tuple[Statistics, Tensor]:
        """Clipped means of a batch, and 1 for each group that it has images of.

        The batch may be balanced while the records are not: images weigh as much as the records of their class do.
        """
        sizes = torch.bincount(labels, minlength=len(self.shares)).to(self.shares)
        # `estimate` takes less than one record of a class for none: so a class weighs 1 at the least.
        totals = self.shares * (sizes > 0) / SMALLEST_SHARE
        sums = statistics.clipped_sums(images, labels, (totals / sizes.clamp(min=1))[labels])
        means = statistics.estimate(sums, totals)
        present = (statistics.membership.to(totals) @ totals > 0).to(totals)
        return Statistics(*(part.float() for part in means)), present

    def to(self, device: torch.device) -> Self:
        center = self.center and Statistics(*(part.to(device) for part in self.center))
        weights, shares = self.class_weights.to(device), self.shares.to(device)
        return type(self)(self.query, center, self.layers.to(device), self.classes.to(device), weights, shares)

    @property
    def identity(self) -> bytes:
        digest = hashlib.sha256(encode(self.query))
        for tensor in (*vars(self.layers).values(), *vars(self.classes).values(), self.class_weights, self.shares):
            digest.update(tensor.cpu().contiguous().numpy().data)
        return digest.digest()
