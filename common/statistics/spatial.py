"""Features that keep the layout of an image: a public network's activations pooled to coarse grids, and a thumbnail.

Moments pooled over all positions forget where things are; here the last layer and a middle one are seen at 2x2 places,
the image itself at 14x14 (grey) or 8x8 (colour). Each layer is scaled by its BatchNorm's public mean and deviation, so
that features of ordinary images are about as long as 1; they are then cut to that length. Differentiable in the images.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from silosynth.common.backbones import Backbone
from silosynth.common.procedural.dice import Dice

PLACES = 2  # along each side, for the layers
THUMBNAIL_VALUES = 200  # at most, of all channels together
MOST_CHANNELS = 96  # of a layer; wider ones are projected, or second moments would be mostly noise
_STREAM = 0x5FA71A1


class SpatialFeatures:
    """What a backbone sees of images, as (images, size) with rows no longer than 1."""

    def __init__(self, backbone: Backbone) -> None:
        norms = [module for module in backbone.network.modules() if isinstance(module, nn.BatchNorm2d)]
        self._backbone = backbone
        self._views = [
            _View(norms, len(norms) - 1, PLACES),
            _View(norms, 2 * len(norms) // 3, PLACES),
        ]

    def __call__(self, images: Tensor) -> Tensor:
        taps = self._backbone.forward_taps(images)
        blocks = [view(taps) for view in self._views]
        blocks.append(thumbnails(images).flatten(1))
        features = torch.cat([block / math.sqrt(block.shape[1]) for block in blocks], dim=1)
        # Hostile weights may overflow: what is not a number must not pass the cut below as one.
        finite = features.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
        cut: Tensor = finite / torch.linalg.vector_norm(finite, dim=1, keepdim=True).clamp(min=1)
        return cut

    @property
    def device(self) -> torch.device:
        return self._backbone.device

    def size(self, shape: tuple[int, ...]) -> int:
        """For images of this height, width and number of channels."""
        return sum(view.size for view in self._views) + math.prod(thumbnail_shape(shape))


def thumbnail_shape(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Channels, height and width of the thumbnail of an image of this height, width and number of channels."""
    height, width, channels = shape
    side = math.isqrt(THUMBNAIL_VALUES // channels)
    return channels, min(side, height), min(side, width)


def thumbnails(images: Tensor) -> Tensor:
    channels, height, width = images.shape[1:]
    return F.adaptive_avg_pool2d(images, thumbnail_shape((height, width, channels))[1:])


class _View:
    """One layer, scaled as its BatchNorm would, at side x side places."""

    def __init__(self, norms: list[nn.BatchNorm2d], tap: int, side: int) -> None:
        norm = norms[tap]
        mean, variance = norm.running_mean, norm.running_var
        assert mean is not None
        assert variance is not None
        self._tap, self._side = tap, side
        self._mean, self._std = mean[:, None, None], (variance + norm.eps).sqrt()[:, None, None]
        self._projection = _projection(len(mean)).to(mean.device) if len(mean) > MOST_CHANNELS else None
        self.size = min(len(mean), MOST_CHANNELS) * side**2

    def __call__(self, taps: list[Tensor]) -> Tensor:
        # Pooling first: it is linear, as what follows, and leaves less to do.
        pooled = (F.adaptive_avg_pool2d(taps[self._tap], self._side) - self._mean) / self._std
        if self._projection is not None:
            pooled = torch.einsum("dc,ncij->ndij", self._projection, pooled)
        return pooled.flatten(1)


def _projection(channels: int) -> Tensor:
    """A fixed public one: its rows are orthogonal, and keep the scale of independent channels."""
    drawn = Dice(_STREAM, channels).normal(channels, MOST_CHANNELS)
    orthogonal, _ = torch.linalg.qr(drawn.double())
    rows: Tensor = orthogonal.T.float().contiguous()
    return rows
