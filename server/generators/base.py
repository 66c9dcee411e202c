"""What a generator is to a recipe: a part of its conversation, at the end of which there is a pool of images."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy.typing as npt
from torch import Tensor

from silosynth.common.events import Event
from silosynth.common.queries import Query
from silosynth.server.recipes.base import Step, Summed, Task


@dataclass(frozen=True)
class Pool:
    """Records as networks take them, sorted by class, equally many of each; and the networks that made them, if any."""

    records: Tensor
    labels: Tensor
    models: dict[str, dict[str, npt.NDArray[Any]]] = field(default_factory=dict)


PoolSteps: TypeAlias = Generator[Step, Summed, Pool]


class PoolGenerator(Protocol):
    def events(self, noise_multiplier: float) -> list[Event]:
        """What one silo will be charged, for planning."""
        ...

    def queries(self, task: Task, noise_multiplier: float) -> list[Query]:
        """All that will be asked, with any name for files that are yet to be made."""
        ...

    def steps(self, task: Task, noise_multiplier: float, per_class: int) -> PoolSteps: ...
