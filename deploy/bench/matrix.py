"""The TOML file that says which runs to make: recipes x datasets x epsilons x silos x partitions x seeds."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import replace
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, PrivateAttr, model_validator

from silosynth.common.config import Section, load, parse
from silosynth.common.errors import ConfigError
from silosynth.common.partition import partition
from silosynth.server.config import EvaluationSettings
from silosynth.server.evaluation.baselines import DP_FEDAVG, PRIVATE_DESCENT
from silosynth.server.recipes import recipe_named
from silosynth.server.recipes.federated_descent import FederatedDescent

POOLED, ALONE, FEDAVG, DP_SGD = "pooled", "alone", "fedavg", "dp-sgd"
NOT_PRIVATE = (POOLED, ALONE, FEDAVG)
PRIVATE = (DP_SGD, DP_FEDAVG)
Silos = Annotated[int, Field(ge=1, le=50)]
Epsilon = Annotated[float, Field(gt=0)]
Seed = Annotated[int, Field(ge=0)]


class DatasetEntry(Section):
    data: str = Field(description="digits, a file, a folder, or a TOML file with [data]; relative to this file")
    classes: int | None = Field(None, ge=1, description="where the files do not say")
    private_sampling: float = Field(
        PRIVATE_DESCENT.sampling_probability, gt=0, lt=1, description="of the records, in a step of dp-sgd or dp-fedavg"
    )
    seeds: tuple[Seed, ...] | None = Field(None, min_length=1, description="of this dataset; unset: the matrix's")


class RecipeEntry(Section):
    recipe: str
    words: str = Field("", description="what it is, for the page: half a line")
    parameters: dict[str, Any] = Field(default_factory=dict)


class Cell(Section):
    """One run. Where two have the same, they need not be made twice."""

    dataset: str
    way: str  # a recipe's entry, or a baseline
    epsilon: float | None  # of each silo; None: without noise
    silos: int
    partition: str
    seed: int
    records: int | None = None  # of each silo; None: all records, dealt to them
    without: int | None = None  # the silo that is left out

    @property
    def setting(self) -> str:
        """How the records lie, in words."""
        size = "" if self.records is None else f" of {self.records} records"
        return f"{self.silos} silo{'s' if self.silos > 1 else ''}{size}, {self.partition}"

    @property
    def budget(self) -> str:
        return "no noise" if self.epsilon is None else f"epsilon {self.epsilon:g}"

    def words(self) -> str:
        left_out = "" if self.without is None else f", without silo {self.without}"
        return f"{self.dataset}, {self.way}, {self.budget}, {self.setting}{left_out}, seed {self.seed}"


class Matrix(Section):
    """A matrix file."""

    title: str
    words: str = Field("", description="what the page says before its tables")
    delta: float = Field(1e-5, gt=0, lt=1)
    epsilons: tuple[Epsilon, ...] = Field(min_length=1, description="inf: without noise")
    silos: tuple[Silos, ...] = (5,)
    records: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (), description="of each silo, drawn with replacement; unset: all records, dealt by the partition"
    )
    partitions: tuple[str, ...] = ("iid",)
    seeds: tuple[Seed, ...] = (0,)
    baselines: tuple[Literal["pooled", "alone", "fedavg", "dp-sgd", "dp-fedavg"], ...] = Field(
        (), description="not private: pooled, alone, fedavg; at every epsilon: dp-sgd of one silo, dp-fedavg of all"
    )
    leave_one_out: tuple[str, ...] = Field((), description="recipes that are also run without each silo in turn")
    apart: bool = Field(
        False, description="the server in a process of its own: takes seconds more, and tells its memory"
    )
    datasets: dict[str, DatasetEntry] = Field(min_length=1)
    recipes: dict[str, RecipeEntry] = Field(default_factory=dict)
    evaluation: EvaluationSettings = EvaluationSettings()
    _file: Path = PrivateAttr(default_factory=Path)

    @model_validator(mode="after")
    def _names_are_known(self) -> Self:
        if taken := {*NOT_PRIVATE, *PRIVATE} & set(self.recipes):
            raise ValueError(f"recipes.{taken.pop()}: that is the name of a baseline, choose another")
        if unknown := set(self.leave_one_out) - set(self.recipes):
            raise ValueError(f"leave_one_out: {unknown.pop()} is none of the recipes")
        return self

    def cells(self) -> Iterator[Cell]:
        """In the order in which they are made: seed after seed, so that a page is soon complete for the first."""
        seeds_of = {name: self.seeds if entry.seeds is None else entry.seeds for name, entry in self.datasets.items()}
        every = dict.fromkeys(seed for seeds in seeds_of.values() for seed in seeds)
        for seed, dataset in product(every, self.datasets):
            if seed not in seeds_of[dataset]:
                continue
            if POOLED in self.baselines:
                yield Cell(dataset=dataset, way=POOLED, epsilon=None, silos=1, partition="iid", seed=seed)
            for silos, records, dealt in product(self.silos, self.records or (None,), self.partitions):
                place = {"silos": silos, "records": records, "partition": dealt, "seed": seed, "dataset": dataset}
                yield from self._cells_of(place, silos)

    def _cells_of(self, place: dict[str, Any], silos: int) -> Iterator[Cell]:
        for way in (ALONE, FEDAVG):
            if way in self.baselines:
                yield Cell(way=way, epsilon=None, **place)
        for epsilon in self.epsilons:
            budget = epsilon if math.isfinite(epsilon) else None
            for way in self.private_ways:
                yield Cell(way=way, epsilon=budget, **place)
                for silo in range(silos if way in self.leave_one_out and silos > 1 else 0):
                    yield Cell(way=way, epsilon=budget, without=silo, **place)

    def recipe_of(self, cell: Cell) -> RecipeEntry | None:
        return self.recipes.get(cell.way)

    @property
    def ways(self) -> tuple[str, ...]:
        """In the order of the page: what nothing private can beat first, then what is as private as the recipes."""
        return (*(way for way in (*NOT_PRIVATE, *PRIVATE) if way in self.baselines), *self.recipes)

    @property
    def private_ways(self) -> tuple[str, ...]:
        return tuple(way for way in self.ways if way not in NOT_PRIVATE)

    @property
    def file_name(self) -> str:
        return self._file.name

    def descent_of(self, dataset: str) -> FederatedDescent:
        return replace(PRIVATE_DESCENT, sampling_probability=self.datasets[dataset].private_sampling)

    def place_of(self, dataset: str) -> str:
        """Where its records are: relative to the file, so that rows are the same wherever it lies."""
        data = self.datasets[dataset].data
        return data if data == "digits" else str(self._file.parent / Path(data).expanduser())


def load_matrix(path: Path) -> Matrix:
    """Read it and find what is wrong with it before anything is run."""
    matrix = load(Matrix, path)
    matrix._file = path.absolute()
    for name, entry in matrix.recipes.items():
        parse(recipe_named(entry.recipe).parameters, entry.parameters, f"{path}: recipes.{name}.parameters")
    for kind in matrix.partitions:
        partition(kind, np.zeros(1, dtype=np.int64), 1, 0)
    if DP_SGD in matrix.baselines and find_spec("opacus") is None:
        raise ConfigError("dp-sgd is Opacus': pip install 'silosynth[bench]', or leave that baseline out")
    return matrix


def check_datasets(matrix: Matrix, needed: Collection[str]) -> None:
    """Before hours are spent on others."""
    for name in needed:
        place = matrix.place_of(name)
        if place != "digits" and not Path(place).exists():
            raise ConfigError(
                f"datasets.{name}.data: there is no {place}: put the records there, or name another --only"
            )
