"""How much an answer speaks for each canary: log-likelihood ratios from what the mechanism makes of each one alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from silosynth.common.datasets.records import Records
from silosynth.common.errors import ConfigError
from silosynth.common.queries import Query
from silosynth.common.releases import Integers

Array = npt.NDArray[np.float64]
Answer = Callable[[Query, Records], Integers]
"""What a silo with these records says to a query, noise and all."""


_SUMS = (
    *("class_counts", "feature_sums", "gradient_sums", "mixtures"),
    *("moments", "scores", "sufficient_statistics", "votes"),
)


def auditable(query: Query) -> bool:
    """Of a sum it is known what one record adds. What has no noise claims nothing."""
    return query.mechanism in _SUMS and query.event().noise_multiplier > 0


class Scorer:
    """Knows each canary's signature, since the attacker has its own copy of the mechanism."""

    def __init__(self, query: Query, canaries: Records, exact: Answer, noise: Array | None = None) -> None:
        """`exact` answers without noise; `noise`, of every value, is the claimed one unless it was measured."""
        event, plan = query.event(), query.plan()
        if not auditable(query):
            raise ConfigError(
                f"{query.mechanism} of this kind is no noisy sum of records, so it cannot be audited alone"
            )
        self._query, self._compositions, self._rate = query, event.count, event.sampling_probability
        certain: Any = replace(query, sampling_probability=1.0) if self._rate < 1 else query  # type: ignore[call-arg]
        claimed = plan.noise_std / plan.grid
        self._noise = np.full(plan.layout.size, claimed) if noise is None else np.maximum(noise, 1e-9 * claimed)
        numbers = np.arange(len(canaries))
        made = [exact(certain, canaries.take(numbers[i : i + 1])) for i in numbers]
        signatures = np.stack([self._by_composition(one / self._noise) for one in made], axis=1)
        self._parts = [_Separation(part, self._rate) for part in signatures]
        squares = [np.square(self._by_composition(one * np.float64(plan.grid))).sum(axis=1).mean() for one in made]
        self.reach = float(np.sqrt(np.mean(squares)) / plan.sensitivity)
        """How far canaries move the answer, of what a record can at most: 1 leaves nothing to a better attacker."""

    def scores(self, answer: Integers) -> Array:
        """One for each canary; a canary is drawn into each composition with the event's sampling probability."""
        ratios = np.stack(
            [
                part.ratios(seen)
                for part, seen in zip(self._parts, self._by_composition(answer / self._noise), strict=True)
            ]
        )
        if self._rate == 1:
            return np.asarray(ratios.sum(axis=0))
        return np.asarray(np.logaddexp(np.log1p(-self._rate), np.log(self._rate) + ratios).sum(axis=0))

    def _by_composition(self, values: Array) -> Array:
        """(compositions, values): a sampled query has one row of each block for each sample."""
        blocks = self._query.layout().split(values)
        return np.concatenate([block.reshape(self._compositions, -1) for block in blocks.values()], axis=1)


class _Separation:
    """Tells canaries apart whose signatures overlap: a linear estimate of who took part, and how good it is."""

    def __init__(self, signatures: Array, rate: float) -> None:
        self._expected = rate / 2  # a fair coin, then the sampling
        overlap = signatures @ signatures.T
        inverse = np.linalg.inv(overlap + 4 * np.eye(len(overlap)))
        mixing = inverse @ overlap
        self._gain = np.diag(mixing)
        others = np.square(mixing).sum(axis=1) - self._gain**2
        self._variance = np.einsum("ij,ij->i", mixing, inverse) + others / 4
        self._filter = inverse @ signatures
        self._offset = self._filter @ signatures.sum(axis=0) * self._expected

    def ratios(self, seen: Array) -> Array:
        """Log-likelihood ratios of taking part in this composition and not."""
        share = (self._filter @ seen - self._offset) / self._gain + self._expected
        return np.asarray((share - 0.5) * self._gain**2 / self._variance)
