"""95 % intervals of accuracies."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from silosynth.common.config import Section

_NORMAL_QUANTILE = 1.959964

Method = Literal["t over seeds", "Wilson over test records", "Fieller over noise"]


class Interval(Section):
    """Where the accuracy lies with 95 % confidence, and which chance that covers.

    "t over seeds": other seeds, the same test records. "Wilson over test records": the same model, other test records.
    "Fieller over noise": the same model and records, other noise.
    """

    low: float
    high: float
    method: Method


def interval(by_seed: npt.NDArray[np.float64], test_records: int) -> Interval:
    if len(by_seed) > 1:
        return _student(by_seed)
    return _wilson(float(by_seed[0]), test_records)


def _student(by_seed: npt.NDArray[np.float64]) -> Interval:
    count = len(by_seed)
    half = float(stdtrit(count - 1, 0.975)) * float(by_seed.std(ddof=1)) / math.sqrt(count)
    return _cut(float(by_seed.mean()), half, "t over seeds")


def _wilson(share: float, count: int) -> Interval:
    square = _NORMAL_QUANTILE**2
    centre = (share + square / (2 * count)) / (1 + square / count)
    half = _NORMAL_QUANTILE * math.sqrt(share * (1 - share) / count + square / (4 * count**2)) / (1 + square / count)
    return _cut(centre, half, "Wilson over test records")


def noisy_share(part: float, whole: float, variance: float) -> tuple[float, Interval] | None:
    """What `part` is of `whole` where both have noise of this variance; None if the whole is lost in it.

    By Fieller's theorem the interval holds all shares r for which part - r * whole may be noise: no approximation.
    """
    noise = _NORMAL_QUANTILE**2 * variance
    certain = whole**2 - noise
    if whole <= 0 or certain <= 0:
        return None
    half = math.sqrt(noise * (part**2 + certain)) / certain
    return min(max(part / whole, 0.0), 1.0), _cut(part * whole / certain, half, "Fieller over noise")


def _cut(centre: float, half: float, method: Method) -> Interval:
    low, high = (min(max(end, 0.0), 1.0) for end in (centre - half, centre + half))
    return Interval(low=low, high=high, method=method)
