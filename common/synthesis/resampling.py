"""Bilinear resampling as two matrix products per image, rows and columns.

Unlike torch's own samplers its gradient is deterministic on a GPU too, and for small images it is faster.
"""

from __future__ import annotations

import torch
from torch import Tensor


def resampled(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """`rows` and `columns` as `weights` gives them, of one window for all images or of one for each."""
    return rows[..., None, :, :] @ images @ columns[..., None, :, :].mT


def weights(size: int, outputs: int, share: Tensor, middle: Tensor) -> Tensor:
    """The share of each of `size` pixels in each of `outputs`, (..., outputs, size), for windows of one axis.

    A window spans `share` of the axis about `middle`, which is 0 in the centre and 1 at the end. If the share is
    negative, what is seen is mirrored.
    """
    places = (torch.arange(outputs, device=share.device) + 0.5) / outputs * 2 - 1
    seen = share[..., None] * places + middle[..., None]
    pixels = ((seen + 1) / 2 * size - 0.5).clamp(0, size - 1)
    distances = (pixels[..., None] - torch.arange(size, device=share.device)).abs()
    return (1 - distances).clamp(min=0)
