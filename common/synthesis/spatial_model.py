"""A release of spatial features as Gaussians, one for each class, which share a covariance.

With u a record's features, less the centre of its class if the query has centres, cut to length 1, the release tells
noisy class means m_c of u and a noisy second moment of all u; what the means leave of it is the covariance W within
classes. Noise of standard deviation s turns the eigenvalues of a d x d matrix into a semicircle of radius 2 s sqrt(d):
those beyond it are signal, and how far noise has pushed them is known (spiked Wigner matrices).
"""

from __future__ import annotations

import hashlib
import math
from copy import copy
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from silosynth.common.procedural.dice import Dice
from silosynth.common.queries import SufficientStatistics, encode
from silosynth.common.statistics import triangles
from silosynth.common.statistics.centers import decode_centers
from silosynth.common.synthesis.certainty import certainty, shares
from silosynth.common.synthesis.stage_release import Release

_PENALTY = (
    0.12  # of the semicircle's half radius; chosen on the training part of Fashion-MNIST, 0.06 to 0.25 do as well
)
_SMALLEST = 1e-6  # stands in for the noise of an infinite budget


@dataclass(frozen=True)
class SpatialModel:
    """What a release tells of the classes, in units of the query's clip; single precision but for the spectrum."""

    clip: float
    centers: Tensor  # (classes, d), of features
    certain: Tensor  # (classes,), 0 for a class of which nothing is known, 1 for a well known one
    shares: Tensor  # (classes,), of all records, times the number of classes
    means: Tensor  # (classes, d)
    values: Tensor  # (d,), the spectrum of W, ascending
    vectors: Tensor  # (d, d), in columns
    noise: float  # s sqrt(d): eigenvalues up to twice this may be noise
    identity: bytes

    @classmethod
    def of(cls, release: Release) -> Self:
        query = _spatial(release)
        blocks = query.layout().split(release.values)
        counts, certain, means = _classes(release, query)
        total, portions = counts.sum().clamp(min=1), shares(counts) / len(counts)
        scatter = triangles.unpack(torch.from_numpy(blocks["moments"]), query.dimension) / total
        within = scatter - (means.T * (portions / portions.sum()).double()) @ means
        values, vectors = torch.linalg.eigh(within)
        return cls(
            query.clip,
            _centers(release, query),
            certain,
            shares(counts),
            means.float(),
            values,
            vectors.float(),
            release.noise_std * math.sqrt(query.dimension) / float(total),
            hashlib.sha256(encode(query) + release.values.tobytes()).digest(),
        )

    def seen(self, features: Tensor, labels: Tensor) -> Tensor:
        """u of images, differentiable: centred and cut as silos do it with records."""
        return _cut((features - self.centers[labels]) / self.clip)

    def signal(self) -> Tensor:
        """The spectrum as it was before noise, as far as it can be told from noise; 0 elsewhere."""
        values = self.values
        beyond = (values.square() - (2 * self.noise) ** 2).clamp(min=0).sqrt()
        return torch.where(values > 2 * self.noise, (values + beyond) / 2, 0.0).float()

    def feature_means(self) -> Tensor:
        return self.centers + self.clip * self.means

    def drawn(self, labels: Tensor, seed: int) -> Tensor:
        """Features of imagined records of these classes."""
        normal = Dice(seed).normal(len(labels), len(self.values))
        return self.feature_means()[labels] + self.clip * (normal * self.signal().sqrt()) @ self.vectors.T

    def logits(self, features: Tensor) -> Tensor:
        """Of the Gaussian discriminant: what class such features speak for. Costs no privacy.

        Classes are taken to be as frequent as they are among the records; unknown ones are never the answer.
        """
        spectrum = self.clip**2 * (self.values.clamp(min=0) + _PENALTY * self.noise + _SMALLEST)
        precise = (self.vectors / spectrum.float().to(self.vectors)) @ self.vectors.T
        means = self.feature_means()
        weights = means @ precise
        prior = (self.shares * self.certain).clamp(min=torch.finfo(torch.float32).tiny).log()
        return features @ weights.T - (weights * means).sum(1) / 2 + prior

    def to(self, device: torch.device) -> Self:
        moved = copy(self)
        for name, value in vars(self).items():
            object.__setattr__(moved, name, value.to(device) if isinstance(value, Tensor) else value)
        return moved


def class_means(release: Release) -> Tensor:
    """Of features, from a release of sums alone: centres for the next stage."""
    query = _spatial(release)
    return query.clip * _classes(release, query)[2]


def _classes(release: Release, query: SufficientStatistics) -> tuple[Tensor, Tensor, Tensor]:
    """Noisy numbers of records, how certain they are, and means of what is summed."""
    blocks, one_record = query.layout().split(release.values), query.class_weight * query.count_weight
    counts = torch.from_numpy(blocks["counts"]) / one_record
    certain = certainty(counts, torch.full_like(counts, release.noise_std / one_record))
    return counts, certain, _means(torch.from_numpy(blocks["sums"]) / query.class_weight, counts, certain)


def _means(sums: Tensor, counts: Tensor, certain: Tensor) -> Tensor:
    """Of each class; a class of which little is known is taken to be like all others. No mean is longer than 1."""
    own, overall = sums / counts.clamp(min=1)[:, None], sums.sum(0) / counts.sum().clamp(min=1)
    return _cut(torch.lerp(overall.expand_as(own), own, certain.double()[:, None]))


def _cut(vectors: Tensor) -> Tensor:
    cut: Tensor = vectors / torch.linalg.vector_norm(vectors, dim=1, keepdim=True).clamp(min=1)
    return cut


def _spatial(release: Release) -> SufficientStatistics:
    assert isinstance(release.query, SufficientStatistics)
    return release.query


def _centers(release: Release, query: SufficientStatistics) -> Tensor:
    if query.centers:
        return torch.from_numpy(decode_centers(release.center, query)).float()
    return torch.full((query.schema.classes, query.dimension), query.center)
