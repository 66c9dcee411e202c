"""Votes: which of the server's candidate images are nearest to a silo's records, class by class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from silosynth.common.events import Event, SampledGaussian
from silosynth.common.layout import Layout
from silosynth.common.queries.base import Query, require
from silosynth.common.queries.sufficient_statistics import MOST_FEATURES

MOST_CANDIDATES = 1 << 16  # of all classes, every view of each counted


@dataclass(frozen=True, kw_only=True)
class Votes(Query):
    """A record of class c adds 1 to the one candidate of class c that is nearest to it, as a public backbone sees them.

    A candidate is as many images as it has views, and lies at the mean of their features. Candidates and backbone need
    no trust: whatever they are, a record has one vote.
    """

    mechanism: ClassVar[str] = "votes"

    backbone: str
    features: int
    candidates: str
    per_class: int
    views: int

    def __post_init__(self) -> None:
        require(self.schema.is_image, "a backbone looks at images, these records are rows")
        require(1 <= self.features <= MOST_FEATURES, f"{self.features} features are not in [1, {MOST_FEATURES}]")
        for name, number in (("candidates a class", self.per_class), ("views", self.views)):
            require(1 <= number <= MOST_CANDIDATES, f"{number} {name} are not in [1, {MOST_CANDIDATES}]")
        require(self.images <= MOST_CANDIDATES, f"{self.images} images of candidates are more than {MOST_CANDIDATES}")
        super().__post_init__()

    @property
    def images(self) -> int:
        """In the artifact: sorted by class, the views of a candidate after one another."""
        return self.schema.classes * self.per_class * self.views

    def artifacts(self) -> tuple[str, ...]:
        return (self.backbone, self.candidates)

    def backbones(self) -> tuple[str, ...]:
        return (self.backbone,)

    def passing_artifacts(self) -> tuple[str, ...]:
        return (self.candidates,)

    def layout(self) -> Layout:
        return Layout.of(votes=(self.schema.classes, self.per_class))

    def sensitivity(self) -> float:
        return 1.0

    def grid(self) -> float:
        return 1.0 / 64

    def event(self) -> Event:
        return SampledGaussian(self.noise_multiplier)
