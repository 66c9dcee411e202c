"""Partition and enlarge (PEA): an image holds four, which are cut out and enlarged to its size before use.

Reference: Zhao et al., "Improved distribution matching for dataset condensation".
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

QUARTERS = 4


def enlarged_quarters(images: Tensor) -> Tensor:
    """(count, channels, height, width) to (4 * count, ...), the quarters of an image after one another."""
    height, width = images.shape[-2:]
    rows, columns = (height + 1) // 2, (width + 1) // 2
    quarters = [
        images[..., top : top + rows, left : left + columns]
        for top in (0, height - rows)
        for left in (0, width - columns)
    ]
    return F.interpolate(torch.stack(quarters, dim=1).flatten(0, 1), (height, width), mode="bilinear")
