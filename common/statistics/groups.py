"""Records sorted into groups, such as classes, and groups into pseudo-classes."""

from __future__ import annotations

from itertools import accumulate, pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from silosynth.common.procedural.dice import Dice

_PSEUDO_CLASSES = 2  # tells this stream of a seed from those of the projections


class Groups:
    """Which of `count` groups each record of a batch belongs to."""

    def __init__(self, labels: Tensor, count: int) -> None:
        self.labels = labels
        self.count = count

    def matrix(self, weights: Tensor) -> Tensor:
        """(groups, records): multiplied with vectors of the records it gives their weighted sums by group."""
        return F.one_hot(self.labels, self.count).T * weights

    def sorted(self) -> tuple[Tensor, list[tuple[int, slice]]]:
        """An order that puts groups one after another, and where each group that has records lies in it."""
        sizes = torch.bincount(self.labels, minlength=self.count).tolist()
        edges = pairwise(accumulate(sizes, initial=0))
        places = [(group, slice(start, stop)) for group, (start, stop) in enumerate(edges) if stop > start]
        return torch.argsort(self.labels, stable=True), places


def membership(classes: int, pseudo_classes: int, members: int, seed: int) -> Tensor:
    """(pseudo-classes, classes), 1 where a pseudo-class holds a class: random, and every class is held equally often.

    Each pseudo-class takes those classes that were taken least so far, and among these random ones.
    """
    if pseudo_classes == 0:
        return torch.eye(classes, dtype=torch.float64)
    ranks = Dice(seed, _PSEUDO_CLASSES).uniform(pseudo_classes, classes)
    held = torch.zeros(pseudo_classes, classes, dtype=torch.float64)
    taken = torch.zeros(classes)
    for group in range(pseudo_classes):
        chosen = torch.argsort(taken + ranks[group])[:members]
        held[group, chosen] = 1
        taken[chosen] += 1
    return held
