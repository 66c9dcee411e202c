"""Candidates of all classes, and who of them lives on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from silosynth.common.datasets.records import Labels
from silosynth.server.generators.proposals.base import Pixels, Proposals
from silosynth.server.recipes.base import Array

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Population:
    """Images sorted by class, equally many of each."""

    images: Pixels
    classes: int

    @property
    def per_class(self) -> int:
        return len(self.images) // self.classes

    @property
    def labels(self) -> Labels:
        return np.repeat(np.arange(self.classes), self.per_class)

    def varied(self, proposals: Proposals, strength: float, seed: int) -> Population:
        return Population(proposals.varied(self.images, self.labels, strength, seed), self.classes)

    def views(self, proposals: Proposals, count: int, strength: float, seed: int) -> Pixels:
        """What is voted for: so many variations of each candidate, after one another; without any, it itself."""
        if not count:
            return self.images
        views = [self.varied(proposals, strength, seed + number).images for number in range(count)]
        return np.stack(views, axis=1).reshape(-1, *self.images.shape[1:])

    def best(self, votes: Array, count: int) -> Population:
        """Of each class those with most votes, as they are."""
        return self._of(np.argsort(-votes, axis=1, kind="stable")[:, :count])

    def drawn(self, votes: Array, count: int, seed: int) -> tuple[Population, npt.NDArray[np.bool_]]:
        """Of each class, in proportion to votes; and which of these stand there for the first time."""
        rows = np.stack([_in_proportion(of_class, count, seed + label) for label, of_class in enumerate(votes)])
        first = np.diff(rows, axis=1, prepend=-1) > 0
        return self._of(rows), first.reshape(-1)

    def beside(self, others: Population) -> Population:
        parts = [part.images.reshape(self.classes, -1, *self.images.shape[1:]) for part in (self, others)]
        return Population(np.concatenate(parts, axis=1).reshape(-1, *self.images.shape[1:]), self.classes)

    def _of(self, rows: Rows) -> Population:
        """These rows of each class."""
        starts = np.arange(self.classes)[:, None] * self.per_class
        return Population(self.images[(starts + rows).reshape(-1)], self.classes)


def _in_proportion(votes: Array, count: int, seed: int) -> Rows:
    """In ascending order. Evenly spaced with one random shift: nobody is drawn much less often than he should be."""
    weights = votes if votes.sum() > 0 else np.ones_like(votes)
    places = (np.random.default_rng(seed).random() + np.arange(count)) / count
    ends = np.cumsum(weights) / weights.sum()
    return np.minimum(np.searchsorted(ends, places, side="right"), len(votes) - 1)
