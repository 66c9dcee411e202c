"""What recipes have in common that publish a generator's pool as it is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from silosynth.common.accounting import calibrate
from silosynth.common.events import Event
from silosynth.server.generators.base import PoolGenerator
from silosynth.server.recipes.base import Product, Steps, Task
from silosynth.server.recipes.feature_signals import product
from silosynth.server.recipes.outlook import Crowd, Outlook


class PoolRecipe(ABC):
    """Its parameters are the generator's, and `records_per_class`."""

    @abstractmethod
    def generator(self, parameters: Any) -> PoolGenerator: ...

    def events(self, task: Task, parameters: Any, noise_multiplier: float) -> list[Event]:
        return self.generator(parameters).events(noise_multiplier)

    def outlook(self, task: Task, parameters: Any, crowd: Crowd) -> Outlook:
        return self.generator(parameters).outlook(task, self._noise(task, parameters), crowd)

    def steps(self, task: Task, parameters: Any) -> Steps:
        count = parameters.records_per_class
        pool = yield from self.generator(parameters).steps(task, self._noise(task, parameters), count)
        made = product(pool.records, [count] * task.schema.classes, task.schema)
        return Product(made.features, made.labels, models=pool.models)

    def _noise(self, task: Task, parameters: Any) -> float:
        return calibrate(lambda z: self.events(task, parameters, z), task.epsilon, task.delta)
