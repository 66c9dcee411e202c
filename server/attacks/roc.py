"""From scores of members and outsiders to what stands in attacks.json."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata

from silosynth.server.attacks.bounds import clopper_pearson
from silosynth.server.attacks.claims import Claim
from silosynth.server.attacks.report import Membership, Rate, RocPoint

Scores = npt.NDArray[np.float64]

_POINTS = 200  # of the curve that are kept
_NORMAL_QUANTILE = 1.959964
_CERTAINTY = 0.999  # before anybody is accused


def membership(
    attack: Literal["lira", "density", "nearest"],
    method: str,
    scores: Scores,
    took_part: npt.NDArray[np.bool_],
    claim: Claim | None,
) -> Membership:
    """Larger scores speak for having taken part; both arrays may have any shape. No claim: nothing is promised."""
    inside, outside = scores[took_part], scores[~took_part]
    area = _area(inside, outside)
    half = _NORMAL_QUANTILE * _area_error(area, len(inside), len(outside))
    rates = [_rate(inside, outside, false_rate, claim) for false_rate in (0.001, 0.01)]
    return Membership(
        attack=attack,
        method=method,
        members=len(inside),
        outsiders=len(outside),
        area=area,
        area_interval=(max(area - half, 0.0), min(area + half, 1.0)),
        tpr_at_0_1_percent=rates[0],
        tpr_at_1_percent=rates[1],
        roc=_curve(inside, outside),
        flagged=claim is not None and any(_too_good(inside, outside, rate, claim) for rate in (0.0, 0.001, 0.01, 0.1)),
    )


def _area(inside: Scores, outside: Scores) -> float:
    """The probability that a member's score is the larger one; ties count half."""
    ranks = rankdata(np.concatenate([inside, outside]))[: len(inside)]
    return float((ranks.sum() - len(inside) * (len(inside) + 1) / 2) / (len(inside) * len(outside)))


def _area_error(area: float, inside: int, outside: int) -> float:
    """Standard deviation after Hanley and McNeil (1982)."""
    both, other = area / (2 - area), 2 * area**2 / (1 + area)
    variance = area * (1 - area) + (inside - 1) * (both - area**2) + (outside - 1) * (other - area**2)
    return math.sqrt(max(variance, 0.0) / (inside * outside))


def _threshold(outside: Scores, false_rate: float) -> float:
    """Above it lie no more than this share of the outsiders."""
    return float(np.sort(outside)[::-1][int(false_rate * len(outside))])


def _rate(inside: Scores, outside: Scores, false_rate: float, claim: Claim | None) -> Rate | None:
    if len(outside) < 1 / false_rate:
        return None
    found = int((inside > _threshold(outside, false_rate)).sum())
    low, high = clopper_pearson(found, len(inside))
    most = None if claim is None else claim.allowed(false_rate)
    return Rate(value=found / len(inside), low=low, high=high, allowed=most)


def _too_good(inside: Scores, outside: Scores, false_rate: float, claim: Claim) -> bool:
    """With both rates taken where they speak least against the claim."""
    threshold = _threshold(outside, false_rate)
    true_low, _ = clopper_pearson(int((inside > threshold).sum()), len(inside), _CERTAINTY)
    _, false_high = clopper_pearson(int((outside > threshold).sum()), len(outside), _CERTAINTY)
    return true_low > claim.allowed(false_high)


def _curve(inside: Scores, outside: Scores) -> tuple[RocPoint, ...]:
    """Denser where false positives are few: that is where attacks hurt."""
    rates = np.unique(np.concatenate([[0.0], np.geomspace(1 / max(len(outside), 2), 1, _POINTS)]))
    ordered, members = np.sort(outside)[::-1], np.sort(inside)
    thresholds = ordered[np.minimum((rates * len(outside)).astype(np.int64), len(outside) - 1)]
    caught = 1 - np.searchsorted(members, thresholds, side="right") / len(inside)
    false = 1 - np.searchsorted(ordered[::-1], thresholds, side="right") / len(outside)
    points = dict.fromkeys([*zip(false.tolist(), caught.tolist(), strict=True), (1.0, 1.0)])
    return tuple(RocPoint(false_positive_rate=x, true_positive_rate=y) for x, y in points)
