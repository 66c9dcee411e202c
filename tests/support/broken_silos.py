"""Silos that break their word, each in one way: controls that attacks must find."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
from support.entropies import SeededEntropy

from silosynth.client.guard.noise import rounded_gaussian
from silosynth.common.datasets import Records
from silosynth.common.queries import Mixtures, Query
from silosynth.deploy.inprocess import InProcess

Integers = npt.NDArray[np.int64]
HONEST = InProcess([])


def no_noise(query: Query, records: Records) -> Integers:
    return HONEST.exact_answer(query, records)


def third_of_the_noise(query: Query, records: Records) -> Integers:
    return HONEST.answer(replace(query, noise_multiplier=query.noise_multiplier / 3), records)


def counts_leaked(query: Query, records: Records) -> Integers:
    """Sums are noisy, as they should be; the classes' sizes are told as they are."""
    released = HONEST.answer(query, records)
    return np.concatenate([released[: _counts_at(query)], HONEST.exact_answer(query, records)[_counts_at(query) :]])


def clock_noise(query: Query, records: Records, moment: int) -> Integers:
    """Noise from a generator that was seeded with the time."""
    return InProcess([], SeededEntropy(moment)).answer(query, records)


def recovered(query: Mixtures, released: Integers, moments: range) -> Integers | None:
    """The exact sums behind `clock_noise`: at the right moment all counts are multiples of what one record adds."""
    plan = query.plan()
    for moment in moments:
        noise = rounded_gaussian(plan.noise_std / plan.grid, plan.layout.size, SeededEntropy(moment))
        clean = released - noise
        if not (clean[_counts_at(query) :] % query.count_step()).any():
            return clean
    return None


def _counts_at(query: Query) -> int:
    """Where the last block begins."""
    (name, shape) = query.layout().blocks[-1]
    assert name == "counts"
    return query.layout().size - int(np.prod(shape))
