"""LDPDC: a synthetic record is a noisy mixture of records of its class (Zheng and Li, Algorithm 1), corrected.

For each class c and each of M mixtures: draw a Poisson sample of the class at rate q, sum it, add noise, divide by the
sample's expected size. The paper's rate L / N_c differs by class and its divisor L = q * N_c tells N_c; here one public
rate serves all classes, and N_c is estimated from noisy counts, of all mixtures together, that travel with the sums.
`denoise = false` ends here: the paper's algorithm. Otherwise what the known noise explains is removed, first from the
class means, then from each mixture's difference from its mean, and the mixtures, averages of many records, are
given back the variety of single ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import Field

from silosynth.common.accounting import calibrate, epsilon
from silosynth.common.config import Section
from silosynth.common.errors import ConfigError
from silosynth.common.events import Event, SampledGaussian
from silosynth.common.queries import Mixtures
from silosynth.server.recipes.base import Array, Product, Steps, Summed, Task
from silosynth.server.recipes.classifiers import nearest_mean
from silosynth.server.recipes.clipping import Clipping
from silosynth.server.recipes.outlook import Crowd, Outlook, bearable_when_denoised, noise_of_class_means
from silosynth.server.synthesis.contrast import in_box
from silosynth.server.synthesis.denoise import denoised_counts, denoised_means, shrunk
from silosynth.server.synthesis.variation import vary


class Parameters(Clipping):
    """The paper: mixtures = 50, a rate of 50 / N_c, noise_multiplier = 1, center = 0, clip = 1, denoise = false.

    The default rate is high because the mean of all mixtures is then nearly as exact as one sum of everything: at
    epsilon 1 its noise is 1 % above that, at a rate of 0.1 11 %; at epsilon 8 it is 7 % and 89 %.
    """

    mixtures: int = Field(50, ge=1, le=10_000, description="M, synthetic records per class")
    sampling_probability: float = Field(0.5, gt=0, le=1, description="q, one public rate for all classes")
    count_weight: float = Field(0.3, gt=0, le=10, description="kappa: the counting coordinate's share of the bound")
    noise_multiplier: float | None = Field(None, ge=0, description="z; default: what the run's epsilon asks for")
    denoise: bool = True


class Ldpdc:
    name = "ldpdc"
    parameters: type[Section] = Parameters
    levers: tuple[dict[str, Any], ...] = ({"sampling_probability": 1.0},)
    post_processing = (
        "The noisy mixtures of each class are summed over silos and divided by their noisy sizes; unless the run says "
        "denoise = false, what the known noise explains is removed and each record gets a smooth random pattern, drawn "
        "from a public seed, in place of the variety that averaging took away: that variety is invented, not observed."
    )

    def events(self, task: Task, parameters: Parameters, noise_multiplier: float) -> list[Event]:
        return [SampledGaussian(noise_multiplier, parameters.sampling_probability, parameters.mixtures)]

    def outlook(self, task: Task, parameters: Parameters, crowd: Crowd) -> Outlook:
        query = self._query(task, parameters)
        noise = noise_of_class_means(
            query,
            crowd,
            dimension=task.schema.dimension,
            bound=query.clip,
            rate=query.sampling_probability,
            repeats=query.mixtures,
        )
        return Outlook([query], noise, bearable_when_denoised(query))

    def _query(self, task: Task, parameters: Parameters) -> Mixtures:
        center, radius = parameters.bounds(task.schema)
        return Mixtures(
            schema=task.schema,
            noise_multiplier=self._noise_multiplier(task, parameters),
            mixtures=parameters.mixtures,
            sampling_probability=parameters.sampling_probability,
            center=center,
            clip=radius,
            count_weight=parameters.count_weight * radius,
        )

    def steps(self, task: Task, parameters: Parameters) -> Steps:
        query = self._query(task, parameters)
        summed = yield query
        drawn = _drawn_records(query, summed)
        if parameters.denoise:
            means, mixtures = _denoised(query, summed, drawn)
            records = vary(in_box(mixtures, query.center, task.schema), task.schema, task.seed)
        else:
            mixtures = summed.blocks["sums"] * query.mixtures / drawn[:, None]
            means = mixtures.mean(axis=0)
            records = in_box(mixtures, query.center, task.schema)
        return Product.of(records, task.schema, classifier=nearest_mean(means, query.center, query.clip))

    def _noise_multiplier(self, task: Task, parameters: Parameters) -> float:
        z = parameters.noise_multiplier
        if z is None:
            return calibrate(lambda z: self.events(task, parameters, z), task.epsilon, task.delta)
        spent = epsilon(self.events(task, parameters, z), task.delta)
        if spent > task.epsilon:
            raise ConfigError(f"noise_multiplier = {z:g} spends epsilon {spent:.3f}, the run has {task.epsilon:g}")
        return z


def _drawn_records(query: Mixtures, summed: Summed) -> Array:
    """M * q * N_c: how many records of each class all mixtures drew together. One's own count is mostly noise."""
    one_record = query.count_step() * query.grid()
    counts = summed.blocks["counts"].sum(axis=0) / one_record
    return denoised_counts(counts, query.mixtures * summed.noise_variance / one_record**2)


def _denoised(query: Mixtures, summed: Summed, drawn: Array) -> tuple[Array, Array]:
    """Class means (C, d), and mixtures (M, C, d) about them."""
    sums, schema, noise = summed.blocks["sums"], query.schema, summed.noise_variance
    count, drawn_by_one = query.mixtures, drawn / query.mixtures
    means = denoised_means(sums.sum(axis=0), drawn, count * noise, schema)
    differences = ((sums - sums.mean(axis=0)) / drawn_by_one[:, None]).reshape(-1, schema.dimension)
    scatter = shrunk(differences, np.tile(noise / drawn_by_one**2, count), schema, freedom=1 - 1 / count)
    return means, means + scatter.reshape(sums.shape)
