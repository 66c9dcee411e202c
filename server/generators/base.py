"""What a generator is to a recipe: a part of its conversation, at the end of which there is a pool of images."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy.typing as npt
from torch import Tensor

from silosynth.common.events import Event
from silosynth.server.recipes.base import Step, Summed, Task
from silosynth.server.recipes.outlook import Crowd, Outlook


@dataclass(frozen=True)
class Pool:
    """Records as networks take them, sorted by class, equally many of each; and the networks that made them, if any."""

    records: Tensor
    labels: Tensor
    models: dict[str, dict[str, npt.NDArray[Any]]] = field(default_factory=dict)


PoolSteps: TypeAlias = Generator[Step, Summed, Pool]


class PoolGenerator(Protocol):
    """Noise multipliers are those of one Gaussian mechanism that is as private as all that is asked together."""

    def events(self, noise_multiplier: float) -> list[Event]:
        """What one silo will be charged, for planning."""
        ...

    def outlook(self, task: Task, noise_multiplier: float, crowd: Crowd) -> Outlook:
        """What will be asked, with any name for files that are yet to be made, and what noise will do to it."""
        ...

    def steps(self, task: Task, noise_multiplier: float, per_class: int) -> PoolSteps: ...
