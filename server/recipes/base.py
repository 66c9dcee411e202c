"""What a recipe is: a conversation that yields queries, receives summed releases, and returns a product.

A step may bring public files that its query names: a recipe yields either a Query or an Ask.
A recipe knows nothing of Flower, files or silos' names; it runs the same in-process and deployed.
Everything it does with releases is post-processing and costs no privacy. Asked again after a restart it
yields the same queries, and the guards answer with the stored bytes: resuming is running again. Sums that later
queries followed from are the server's to keep, for other silos may be there by then.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from silosynth.common.config import Section
from silosynth.common.datasets.records import Records, to_bytes_range
from silosynth.common.errors import QueryError
from silosynth.common.events import Event
from silosynth.common.queries import Plan, Query
from silosynth.common.schema import Schema
from silosynth.server.recipes.outlook import Crowd, Outlook
from silosynth.server.recipes.workplace import Workplace

Array = npt.NDArray[np.float64]
Classifier = Callable[[npt.NDArray[np.float32]], npt.NDArray[np.int64]]


@dataclass(frozen=True)
class Task:
    """What every recipe is told: the records' public shape, each silo's budget for this run, a public seed.

    Long work is done at the workplace: there a recipe reports how far it is and keeps what a restart shall not cost.
    """

    schema: Schema
    epsilon: float
    delta: float
    seed: int = 0
    workplace: Workplace = field(default_factory=Workplace)


@dataclass(frozen=True)
class Ask:
    """A query, and the bytes of artifacts it names, by digest: guards that lack one fetch it, once."""

    query: Query
    artifacts: dict[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for digest, content in self.artifacts.items():
            if hashlib.sha256(content).hexdigest() != digest:
                raise QueryError(f"what the recipe offers as {digest} has another digest: no guard would take it")

    @classmethod
    def of(cls, step: Query | Ask) -> Ask:
        return step if isinstance(step, Ask) else cls(step)


Step: TypeAlias = Query | Ask


@dataclass(frozen=True)
class Summed:
    """The sum of the silos' releases for one query, by block, in value units."""

    blocks: dict[str, Array]
    silos: int
    plan: Plan
    earlier_variance: float = 0.0  # of the noise in what an earlier release has added

    @property
    def noise_variance(self) -> float:
        """Of every coordinate: each silo added its own noise."""
        return self.silos * self.plan.noise_std**2 + self.earlier_variance


@dataclass(frozen=True)
class United(Summed):
    """The silos' releases for a query whose answers are not added up: side by side, in the order of their names.

    `blocks` is empty: each part has blocks of its own, in integers no wider than they need be.
    """

    parts: tuple[dict[str, npt.NDArray[Any]], ...] = ()


@dataclass(frozen=True)
class Product:
    """What a recipe makes: synthetic records in [-1, 1] of the schema's shape, labels, perhaps more."""

    features: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int64]
    soft_labels: npt.NDArray[np.float32] | None = None
    models: dict[str, dict[str, npt.NDArray[Any]]] = field(default_factory=dict)
    classifier: Classifier | None = None  # maps flat float32 features in [-1, 1] to labels

    @classmethod
    def of(cls, features: Array, schema: Schema, **others: Any) -> Product:
        """From an array whose last two axes are classes and dimension."""
        flat = features.reshape(-1, schema.classes, schema.dimension)
        labels = np.tile(np.arange(schema.classes), len(flat))
        return cls(flat.astype(np.float32).reshape(-1, *schema.shape), labels, **others)

    def records(self, schema: Schema) -> Records:
        """The synthetic set as it is published: images in 8 bits."""
        return Records(to_bytes_range(self.features) if schema.is_image else self.features, self.labels, schema)


Made = TypeVar("Made")
Steps = Generator[Step, Summed, Product]


class Recipe(Protocol):
    name: str
    parameters: type[Section]
    post_processing: str  # one sentence for the privacy card: what is done to the silos' releases to make records
    levers: tuple[dict[str, Any], ...]  # settings of parameters that trade something else for less noise

    def events(self, task: Task, parameters: Any, noise_multiplier: float) -> list[Event]:
        """What one silo will be charged, for planning."""
        ...

    def steps(self, task: Task, parameters: Any) -> Steps: ...

    def outlook(self, task: Task, parameters: Any, crowd: Crowd) -> Outlook:
        """What to expect of a run, before anybody is asked."""
        ...


def drive(steps: Generator[Step, Summed, Made], ask: Callable[[Ask], Summed]) -> Made:
    """Run a conversation to its end, answering each step with `ask`."""
    try:
        step = next(steps)
        while True:
            step = steps.send(ask(Ask.of(step)))
    except StopIteration as stop:
        made: Made = stop.value
        return made
