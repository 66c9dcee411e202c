"""Local synthesis: images that a silo makes by itself, from noisy statistics of its records."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import ClassVar

from silosynth.common.events import Event, SampledGaussian
from silosynth.common.layout import Layout
from silosynth.common.queries.base import Query, encode, inner_identity, require

LABELS = ("hard", "gaussian")
MOST_QUESTIONS = 64
PIXEL_OFFSET = 128  # pixels are released as -128..127: one byte each
SOFT_LABEL_STEPS = 127  # a probability of 1

_LONGEST_SETTINGS = 1 << 14


@dataclass(frozen=True, kw_only=True)
class LocalSynthesis(Query):
    """The silo asks itself `questions` statistics and makes images of the noisy answers, as SPS and SPS+ do.

    What is released is post-processing of those answers: images by class, 1 for each class of which they show
    records and 0 for the others, perhaps soft labels.
    """

    mechanism: ClassVar[str] = "local_synthesis"
    added_up: ClassVar[bool] = False

    backbone: str
    questions: int
    images_per_class: int
    labels: str
    seed: int
    settings: str

    def __post_init__(self) -> None:
        require(self.schema.is_image, f"images are made, these records have shape {self.schema.shape}")
        require(1 <= self.questions <= MOST_QUESTIONS, f"{self.questions} questions are not in 1..{MOST_QUESTIONS}")
        require(self.images_per_class >= 1, "no images are asked for")
        require(self.labels in LABELS, f"labels {self.labels[:80]!r} are none of {', '.join(LABELS)}")
        require(0 <= self.seed < 1 << 64, f"seed {self.seed} is not in 0..2^64 - 1")
        require(len(self.settings) <= _LONGEST_SETTINGS and _is_canonical(self.settings), "settings: no canonical JSON")
        super().__post_init__()

    def layout(self) -> Layout:
        classes, each = self.schema.classes, self.images_per_class
        blocks = {"images": (classes, each, *self.schema.shape), "known": (classes,)}
        return Layout.of(**blocks | ({"soft_labels": (classes, each, classes)} if self.labels == "gaussian" else {}))

    def sensitivity(self) -> float:
        """Of the images to a record, once the noisy answers they are made of are given."""
        return 0.0

    def grid(self) -> float:
        return 1.0

    def event(self) -> Event:
        """Of all answers that the silo gives itself: together they cost no more than this one mechanism."""
        return SampledGaussian(self.noise_multiplier)

    def inner_identities(self) -> tuple[bytes, ...]:
        """Questions that do not depend on how many images are made are not asked anew when more of them are wanted.

        With the paper's statistics all but the first are about the images so far.
        """
        whatever = encode(replace(self, images_per_class=1))
        later = whatever if json.loads(self.settings).get("statistics") == "spatial" else encode(self)
        whole = [whatever, *[later] * (self.questions - 1)]
        return tuple(inner_identity(number, encoded) for number, encoded in enumerate(whole))

    def artifacts(self) -> tuple[str, ...]:
        return (self.backbone,)

    def backbones(self) -> tuple[str, ...]:
        return (self.backbone,)


def canonical_json(values: dict[str, object]) -> str:
    return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _is_canonical(text: str) -> bool:
    try:
        values = json.loads(text)
        return isinstance(values, dict) and canonical_json(values) == text
    except (ValueError, RecursionError):
        return False
