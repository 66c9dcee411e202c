"""What is said in a synthesis: questions to whoever holds records, answers, and what comes of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from torch import Tensor

from silosynth.common.queries import Moments, SufficientStatistics
from silosynth.common.schema import Schema
from silosynth.common.synthesis.engine import Report, Sketch
from silosynth.common.synthesis.stage_release import Release


@dataclass(frozen=True)
class Question:
    query: Moments | SufficientStatistics
    artifacts: dict[str, bytes]


@dataclass(frozen=True)
class Answer:
    values: npt.NDArray[np.float64]  # summed over silos, in the order of the query's layout
    noise_std: float  # of each of them


@dataclass(frozen=True)
class Synthesized:
    images: Tensor  # (images, channels, height, width), in [-1, 1]
    labels: Tensor
    releases: list[Release]
    soft_labels: Tensor | None = None  # (images, classes), where they were asked for


@dataclass(frozen=True)
class Job:
    """What a conversation is about, beside its parameters. `noise_multiplier` is that of all stages together."""

    schema: Schema
    noise_multiplier: float
    seed: int
    report: Report
    checkpoints: Path | None = None

    def stage_report(self, stage: int, stages: int) -> Report:
        """Of one stage, as a part of the whole."""

        def report(share: float, loss: float, sketch: Sketch) -> None:
            self.report((stage + share) / stages, loss, sketch)

        return report
