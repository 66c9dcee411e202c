"""What noisy counts tell of classes, some of which may be nobody's. Post-processing."""

from __future__ import annotations

import torch
from torch import Tensor

SMALLEST_SHARE = 0.1  # of an equal share: the images of a class that nobody has must be drawn somewhere, too
LARGEST_NOISE = 2.0  # standard deviations: a class that has no more records than noise may feign is unknown


def certainty(sizes: Tensor, noise: Tensor) -> Tensor:
    """From 0 for groups of which nothing is known to 1; `sizes` have noise of these standard deviations."""
    doubt = (LARGEST_NOISE * noise / sizes.clamp(min=1)).square().clamp(max=1)
    return torch.where(sizes >= 1, 1 - doubt, 0.0).float()


def shares(counts: Tensor) -> Tensor:
    """Of all records, times the number of classes."""
    positive = counts.clamp(min=0)
    return (positive / positive.mean().clamp(min=1)).clamp(min=SMALLEST_SHARE).float()
