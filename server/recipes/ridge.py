"""Ridge regression from noisy sufficient statistics. The other floor: a linear model, and records to go with it.

One query: second moments of all records, sums and sizes of the classes. With u a centred record scaled and clipped to
length 1, W and b minimize sum |onehot(y) - W u - b|^2 + lambda |W|^2, where lambda comes from the moments' known noise
alone. The synthetic set is made of the class means in the same release, with variation.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from pydantic import Field

from silosynth.common.accounting import calibrate
from silosynth.common.config import Section
from silosynth.common.events import Event, SampledGaussian
from silosynth.common.queries import SufficientStatistics
from silosynth.server.recipes.base import Array, Product, Steps, Task
from silosynth.server.recipes.classifiers import linear
from silosynth.server.recipes.clipping import Clipping
from silosynth.server.recipes.outlook import Crowd, Outlook, noise_of_class_means
from silosynth.server.synthesis.contrast import in_box
from silosynth.server.synthesis.denoise import denoised_counts, denoised_means
from silosynth.server.synthesis.variation import vary

_BEARABLE = 1.1  # of the class means, measured on digits; the second moments' noise is met by the penalty


class Parameters(Clipping):
    records_per_class: int = Field(50, ge=1, le=10_000)
    class_weight: float = Field(2.0, gt=0, description="of the class sums beside the moments; a power of two")
    count_weight: float = Field(0.25, gt=0, description="kappa, of the counts beside the sums; a power of two")


class Ridge:
    name = "ridge"
    parameters: type[Section] = Parameters
    levers: tuple[dict[str, Any], ...] = ({"class_weight": 4.0},)
    post_processing = (
        "A linear model is fitted to the noisy second moments and class sums; the synthetic records are the denoised "
        "class means, each with a smooth random pattern drawn from a public seed: their variety is invented, not "
        "observed."
    )

    def events(self, task: Task, parameters: Parameters, noise_multiplier: float) -> list[Event]:
        return [SampledGaussian(noise_multiplier)]

    def outlook(self, task: Task, parameters: Parameters, crowd: Crowd) -> Outlook:
        query = self._query(task, parameters)
        noise = noise_of_class_means(query, crowd, dimension=query.dimension, bound=query.class_weight)
        return Outlook([query], noise, _BEARABLE)

    def _query(self, task: Task, parameters: Parameters) -> SufficientStatistics:
        center, radius = parameters.bounds(task.schema)
        return SufficientStatistics(
            schema=task.schema,
            noise_multiplier=calibrate(lambda z: self.events(task, parameters, z), task.epsilon, task.delta),
            center=center,
            clip=radius,
            class_weight=parameters.class_weight,
            count_weight=parameters.count_weight,
        )

    def steps(self, task: Task, parameters: Parameters) -> Steps:
        schema, query = task.schema, self._query(task, parameters)
        center, radius = query.center, query.clip
        summed = yield query
        noise, one_record = summed.noise_variance, query.class_weight * query.count_weight
        moments = _symmetric(summed.blocks["moments"], schema.dimension)
        sums = summed.blocks["sums"] / query.class_weight
        sizes = denoised_counts(summed.blocks["counts"] / one_record, noise / one_record**2)
        weights, bias = _regression(moments, sums, sizes, math.sqrt(noise))
        means = denoised_means(sums, sizes, noise / query.class_weight**2, schema)
        copies = np.tile(in_box(means * radius, center, schema), (parameters.records_per_class, 1, 1))
        return Product.of(
            vary(copies, schema, task.seed),
            schema,
            models={"ridge": _as_model(weights / radius, bias, center, radius)},
            classifier=linear(weights / radius, bias, center, radius),
        )


def _symmetric(triangle: Array, dimension: int) -> Array:
    matrix = np.zeros((dimension, dimension))
    matrix[np.triu_indices(dimension)] = triangle
    return matrix + np.triu(matrix, 1).T


def _regression(moments: Array, sums: Array, sizes: Array, noise_std: float) -> tuple[Array, Array]:
    """W (C, d) and b (C).

    Noise of this size gives a symmetric matrix eigenvalues up to 2 * noise_std * sqrt(d). Negative ones are cut at 0,
    and half that bound is the penalty: directions that might be noise alone count for little.
    """
    total, dimension = sizes.sum(), len(moments)
    mean = sums.sum(axis=0) / total
    values, vectors = np.linalg.eigh(moments - total * np.outer(mean, mean))
    penalty = noise_std * math.sqrt(dimension) + 1e-6 * total
    targets = sums - sizes[:, None] * mean
    weights = (targets @ vectors / (np.maximum(values, 0) + penalty)) @ vectors.T
    return weights, sizes / total - weights @ mean


def _as_model(weights: Array, bias: Array, center: float, radius: float) -> dict[str, Array]:
    """scores = weights @ clipped(x - center) + bias, where clipped() cuts vectors to the length `clip`."""
    return {"weights": weights, "bias": bias, "center": np.array([center]), "clip": np.array([radius])}
