"""Whether a model is as sure as it is right."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from silosynth.common.config import Section

_BINS = 15


class ReliabilityBin(Section):
    """Answers whose confidence lies above `low` and not above `high`."""

    low: float
    high: float
    share: float  # of all answers
    confidence: float  # mean
    accuracy: float


class Calibration(Section):
    """Of all seeds' answers together. An ideal model is right in 80 % of the cases in which it is 80 % sure."""

    expected_error: float  # distance of confidence and accuracy, averaged over bins by their shares
    bins: tuple[ReliabilityBin, ...]  # those that hold answers


def calibration(confidence: npt.NDArray[np.float32], correct: npt.NDArray[np.bool_]) -> Calibration:
    """`confidence` is the probability that the model gave to its answer."""
    edges = np.linspace(0, 1, _BINS + 1)
    places = np.searchsorted(edges[1:-1], confidence.ravel(), side="left")
    bins = tuple(
        ReliabilityBin(
            low=float(edges[place]),
            high=float(edges[place + 1]),
            share=float((places == place).mean()),
            confidence=float(confidence.ravel()[places == place].mean(dtype=np.float64)),
            accuracy=float(correct.ravel()[places == place].mean()),
        )
        for place in np.unique(places)
    )
    return Calibration(
        expected_error=sum(part.share * abs(part.confidence - part.accuracy) for part in bins), bins=bins
    )
