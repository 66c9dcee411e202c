"""Prototypes: one noisy mean per class. A floor that every other recipe must beat.

One query: the sums and sizes of the classes. The synthetic set is one record per class, its mean; a new record belongs
to the class whose mean is nearest.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from silosynth.common.accounting import calibrate
from silosynth.common.config import Section
from silosynth.common.events import Event, SampledGaussian
from silosynth.common.queries import Mixtures
from silosynth.server.recipes.base import Product, Steps, Task
from silosynth.server.recipes.classifiers import nearest_mean
from silosynth.server.recipes.clipping import Clipping
from silosynth.server.recipes.outlook import Crowd, Outlook, bearable_when_denoised, noise_of_class_means
from silosynth.server.synthesis.contrast import in_box
from silosynth.server.synthesis.denoise import denoised_counts, denoised_means


class Parameters(Clipping):
    count_weight: float = Field(0.3, gt=0, le=10, description="kappa: the counting coordinate's share of the bound")


class Prototypes:
    name = "prototypes"
    parameters: type[Section] = Parameters
    levers: tuple[dict[str, Any], ...] = ()
    post_processing = (
        "The noisy sum of each class is divided by its noisy size and freed of what the known noise explains: each "
        "synthetic record is the estimated mean of its class, and no single record looks like it."
    )

    def events(self, task: Task, parameters: Parameters, noise_multiplier: float) -> list[Event]:
        return [SampledGaussian(noise_multiplier)]

    def outlook(self, task: Task, parameters: Parameters, crowd: Crowd) -> Outlook:
        query = self._query(task, parameters)
        noise = noise_of_class_means(query, crowd, dimension=task.schema.dimension, bound=query.clip)
        return Outlook([query], noise, bearable_when_denoised(query))

    def _query(self, task: Task, parameters: Parameters) -> Mixtures:
        center, radius = parameters.bounds(task.schema)
        return Mixtures(
            schema=task.schema,
            noise_multiplier=calibrate(lambda z: self.events(task, parameters, z), task.epsilon, task.delta),
            mixtures=1,  # of everything: with every record drawn, a mixture is a class sum
            sampling_probability=1.0,
            center=center,
            clip=radius,
            count_weight=parameters.count_weight * radius,
        )

    def steps(self, task: Task, parameters: Parameters) -> Steps:
        schema, query = task.schema, self._query(task, parameters)
        summed = yield query
        noise, one_record = summed.noise_variance, query.count_step() * query.grid()
        sizes = denoised_counts(summed.blocks["counts"][0] / one_record, noise / one_record**2)
        means = denoised_means(summed.blocks["sums"][0], sizes, noise, schema)
        records = in_box(means, query.center, schema)
        return Product.of(records, schema, classifier=nearest_mean(means, query.center, query.clip))
