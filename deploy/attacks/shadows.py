"""Membership inference on what a whole recipe releases: shadow runs in which a coin decides for each record.

The first half of the runs are the shadows, the others are attacked: decisions about a run then depend on nothing that
its own coins decided. The recipe's public seed is the same in all, as an attacker would know it; the noise never is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import cdist
from scipy.special import logsumexp

from silosynth.common.datasets.records import Records
from silosynth.common.partition import partition
from silosynth.deploy.inprocess import InProcess
from silosynth.server.attacks.claims import Claim
from silosynth.server.attacks.report import Membership
from silosynth.server.attacks.roc import membership
from silosynth.server.config import EvaluationSettings
from silosynth.server.evaluation.trials import Bench
from silosynth.server.recipes import Recipe
from silosynth.server.recipes.base import Product, Step, Summed, Task, drive

Array = npt.NDArray[np.float64]
Coins = npt.NDArray[np.bool_]
Federation = Callable[[list[Records]], Callable[[Step], Summed]]
"""How shards of records are asked."""

_DIMENSIONS = 16  # in which densities and distances are taken
_SMALLEST = 1e-6

LIRA = (
    "A model is trained on the release; how sure it is of a record is compared with shadow runs with and without that "
    "record (Carlini et al. 2022), shared variances."
)
DENSITY = (
    "Where synthetic records lie denser about a record than public ones do, it is taken for a member (DOMIAS, van "
    "Breugel et al. 2023); only the synthetic records and public ones are looked at."
)
NEAREST = "The nearer the nearest synthetic record of its class, the likelier a record is taken for a member."


def in_process(shards: list[Records]) -> Callable[[Step], Summed]:
    return InProcess(shards).ask


@dataclass(frozen=True)
class Target:
    """What is attacked. Records with a coin of their own in every run; public records of the same kind."""

    recipe: Recipe
    parameters: Any
    task: Task
    candidates: Records
    public: Records
    silos: int
    partition: str
    model: EvaluationSettings
    federation: Federation = field(default=in_process)

    def release(self, members: Coins) -> Product:
        """One run of the whole recipe over the records that take part."""
        here = self.candidates.take(np.flatnonzero(members))
        parts = partition(self.partition, here.labels, self.silos, self.task.seed)
        ask = self.federation([here.take(part) for part in parts])
        return drive(self.recipe.steps(self.task, self.parameters), ask)


def attack(
    target: Target, runs: int, seed: int, claim: Claim | None, report: Callable[[float], None]
) -> tuple[Membership, ...]:
    """Three attacks on the same `runs` runs."""
    coins = np.random.default_rng(seed).random((runs, len(target.candidates))) < 0.5
    sure, dense, near = [], [], []
    eyes = _Eyes(target.public)
    for number, members in enumerate(coins):
        product = target.release(members)
        sure.append(_confidence(target, product))
        dense.append(eyes.density_ratio(product, target.candidates))
        near.append(eyes.nearness(product, target.candidates))
        report((number + 1) / runs)
    half, figures = runs // 2, np.stack(sure)
    ratios = likelihood_ratios(figures[:half], coins[:half], figures[half:])
    return (
        membership("lira", LIRA, ratios, coins[half:], claim),
        membership("density", DENSITY, np.stack(dense), coins, claim),
        membership("nearest", NEAREST, np.stack(near), coins, claim),
    )


def likelihood_ratios(sure: Array, coins: Coins, seen: Array) -> Array:
    """Of figures (runs, records), given those of shadow runs; 0 for a record without shadows of both kinds."""
    inside, outside = _mean_where(sure, coins), _mean_where(sure, ~coins)
    spread = sure - np.where(coins, inside, outside)
    variance = max(float(np.square(spread).sum() / max(spread.size - 2 * spread.shape[1], 1)), _SMALLEST)
    known = coins.any(axis=0) & ~coins.all(axis=0)
    return np.asarray(known * ((seen - outside) ** 2 - (seen - inside) ** 2) / (2 * variance))


def _mean_where(values: Array, mask: Coins) -> Array:
    return np.asarray((values * mask).sum(axis=0) / np.maximum(mask.sum(axis=0), 1))


def _confidence(target: Target, product: Product) -> Array:
    """log(p / (1 - p)) of the true class: nearly Gaussian, as the ratio assumes."""
    published = product.records(target.candidates.schema)
    bench = Bench(published, product.soft_labels, target.candidates, target.model)
    answers = bench.trial(bench.models[0], [0]).votes.astype(np.float64)
    right = np.clip(answers[np.arange(len(answers)), target.candidates.labels], _SMALLEST, 1 - _SMALLEST)
    return np.asarray(np.log(right) - np.log1p(-right))


class _Eyes:
    """Records as points along the principal components of public ones."""

    def __init__(self, public: Records) -> None:
        rows = _rows(public)
        self._mean = rows.mean(axis=0)
        _, _, axes = np.linalg.svd(rows - self._mean, full_matrices=False)
        self._axes = axes[:_DIMENSIONS].T
        self._public = self._points(public)
        dimensions = self._public.shape[1]
        self._bandwidth = float(self._public.std() * len(public) ** (-1 / (dimensions + 4)))  # Scott's rule

    def density_ratio(self, product: Product, candidates: Records) -> Array:
        seen = self._points(product.records(candidates.schema))
        here = self._points(candidates)
        return self._log_density(here, seen) - self._log_density(here, self._public)

    def nearness(self, product: Product, candidates: Records) -> Array:
        seen, here = self._points(product.records(candidates.schema)), self._points(candidates)
        distances = cdist(here, seen)
        farthest = distances.max() + 1  # stands for records of classes that the release lacks
        distances[candidates.labels[:, None] != product.labels[None, :]] = farthest
        return np.asarray(-distances.min(axis=1))

    def _log_density(self, at: Array, of: Array) -> Array:
        exponents = -cdist(at, of, "sqeuclidean") / (2 * self._bandwidth**2)
        return np.asarray(logsumexp(exponents, axis=1) - np.log(len(of)))

    def _points(self, records: Records) -> Array:
        return np.asarray((_rows(records) - self._mean) @ self._axes)


def _rows(records: Records) -> Array:
    parts: Sequence[npt.NDArray[np.float32]] = [features for features, _ in records.batches()]
    return np.concatenate(parts).astype(np.float64)
