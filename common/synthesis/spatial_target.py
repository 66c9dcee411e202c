"""The target of spatial SPS: class means and a common covariance of features that keep the layout of an image.

loss = mean over classes of |B (m_c - target)|^2 + lambda * |B (W - target) B|_F^2 / d, both sides cut as the silos cut
records. B, the inverse square root of the released covariance, weighs directions by what is known of them: those in
which noise hides everything count for little.
"""

from __future__ import annotations

import hashlib
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

from silosynth.common.backbones import Backbone
from silosynth.common.statistics.spatial import SpatialFeatures
from silosynth.common.synthesis.spatial_model import SpatialModel
from silosynth.common.synthesis.target import Target
from silosynth.common.synthesis.working_copy import working_copy

_SCATTER_WEIGHT = 10.0  # lambda
_LEADING = 20  # eigenvalues whose mean sets what is small
_SMALL = 0.02


class SpatialTarget(Target):
    def __init__(self, backbone: Backbone, model: SpatialModel, guide: float) -> None:
        self._backbone, self._features = backbone, SpatialFeatures(backbone)
        self._model, self._guide = model, guide
        values = model.values.clamp(min=0)
        floor = max(2 * model.noise, _SMALL * float(values[-_LEADING:].mean()))
        scale = (values + floor).rsqrt().float().to(model.vectors)
        self._whiten = (model.vectors * scale) @ model.vectors.T
        signal = model.signal().to(scale) * scale.square()
        # Of the target's covariance only directions of signal matter: their number is far below d.
        self._axes, self._variances = model.vectors[:, signal > 0], signal[signal > 0]

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        features = self._features(images)
        units = self._model.seen(features, labels)
        sizes = torch.bincount(labels, minlength=len(self._model.shares))
        sums = F.one_hot(labels, len(sizes)).to(units).T @ units
        means = sums / sizes.clamp(min=1)[:, None]
        known = self._model.certain * (sizes > 0)
        away = ((means - self._model.means) @ self._whiten).square().sum(1) @ known / known.sum().clamp(min=1)
        found = away + _SCATTER_WEIGHT * self._scatter(units - means[labels], labels, sizes) / units.shape[1]
        if not self._guide:
            return found
        return found + self._guide * F.cross_entropy(self._model.logits(features), labels)

    def _scatter(self, differences: Tensor, labels: Tensor, sizes: Tensor) -> Tensor:
        """|W - target|_F^2 of whitened features, by a Gram matrix of images: there are fewer of them than features.

        The batch may be balanced while the records are not: images weigh as much as the records of their class do.
        """
        weights = (self._model.shares / sizes.clamp(min=1))[labels]
        rows = (differences @ self._whiten) * (weights / weights.sum()).sqrt()[:, None]
        along = (rows @ self._axes).square().sum(0)
        return (rows @ rows.T).square().sum() - 2 * self._variances @ along + self._variances.square().sum()

    def on(self, device: torch.device, autocast: bool) -> Self:
        return type(self)(working_copy(self._backbone, device, autocast), self._model.to(device), self._guide)

    @property
    def identity(self) -> str:
        beginning = f"{self._backbone.digest} {self._guide}".encode()
        return hashlib.sha256(beginning + self._model.identity).hexdigest()
