"""What a recipe is given of the silos' answers: their sum, or all of them where they must not be added up."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from silosynth.common.queries import Query
from silosynth.common.releases import Integers, narrowed
from silosynth.server.recipes.base import Summed, United


class Collection(Protocol):
    def add(self, silo: str, values: Integers) -> None: ...

    def all(self) -> Summed: ...


def collection(query: Query) -> Collection:
    return RunningSum(query) if query.added_up else Union(query)


class RunningSum:
    """Holds one vector, however many silos answer."""

    def __init__(self, query: Query) -> None:
        self._plan = query.plan()
        self._values, self._silos = np.zeros(self._plan.layout.size, dtype=np.int64), 0

    def add(self, silo: str, values: Integers) -> None:
        self._values += values
        self._silos += 1

    def all(self) -> Summed:
        values = self._values.astype(np.float64) * self._plan.grid
        return Summed(self._plan.layout.split(values), self._silos, self._plan)


class Union:
    """Holds what will be the product: every silo's answer, in integers no wider than they need be."""

    def __init__(self, query: Query) -> None:
        self._plan = query.plan()
        self._parts: dict[str, npt.NDArray[Any]] = {}

    def add(self, silo: str, values: Integers) -> None:
        self._parts[silo] = narrowed(values)

    def all(self) -> United:
        parts = [self._plan.layout.split(self._parts[silo]) for silo in sorted(self._parts)]
        return United({}, len(parts), self._plan, parts=tuple(parts))
