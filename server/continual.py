"""Continual releases: a run that extends an earlier one, whose statistics and records it reuses at no cost.

More records of the same classes: released sums add up where the queries agree but for their noise, so the recipe works
from the total. New classes, or images that silos made themselves: what the parent holds stays, the new is added.
What a silo has answered for the parent already is not counted again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file

from silosynth.common.datasets.records import to_unit_range
from silosynth.common.errors import ConfigError
from silosynth.common.publication.names import ReleaseName, plain_name
from silosynth.common.queries import Query, decode
from silosynth.common.releases import Receipt
from silosynth.common.synthesis.known_classes import NoisyCounts, known_classes
from silosynth.server.config import RunConfig
from silosynth.server.recipes.base import Ask, Product, Recipe, Steps, Summed, Task
from silosynth.server.releases.folder import class_names
from silosynth.server.releases.store import Store

EXTENDING_RECIPES = ("sps",)

Known = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Statistics:
    """One sum of releases that the parent keeps."""

    query: Query
    values: npt.NDArray[np.float64]
    noise_std: float

    def added_to(self, summed: Summed) -> Summed:
        earlier = summed.plan.layout.split(self.values)
        blocks = {name: block + earlier[name] for name, block in summed.blocks.items()}
        return replace(summed, blocks=blocks, earlier_variance=self.noise_std**2)


@dataclass(frozen=True)
class Parent:
    """What a release holds that another can be built on."""

    release: ReleaseName
    classes: int
    product: Product
    statistics: Sequence[Statistics]
    queries: Sequence[Query]
    receipts: Sequence[Receipt]

    @property
    def entries(self) -> frozenset[bytes]:
        """Of the silos' ledgers: what it already counts."""
        return frozenset(receipt.entry_hash for receipt in self.receipts)

    def statistics_for(self, query: Query) -> Statistics:
        for kept in self.statistics:
            if replace(kept.query, noise_multiplier=query.noise_multiplier) == query:
                return kept
        raise ConfigError(
            f"{self.release} keeps no statistics that could be added to those of this run: repeat its seed and "
            "parameters, backbone included; only the number of images and their making may change"
        )

    def joined(self, new: Product, known: Known, keep: Known, classes: int) -> Product:
        """The new records of classes that are known, after those of the parent that are kept."""
        old, chosen, added = self.product, keep[self.product.labels], known[new.labels]
        return Product(
            np.concatenate([old.features[chosen], new.features[added]]),
            np.concatenate([old.labels[chosen], new.labels[added]]),
            _joined_soft_labels(old, chosen, new, added, classes),
            new.models,
            new.classifier if not keep.any() else None,
        )


def load_parent(store: Store, config: RunConfig) -> Parent:
    """ConfigError unless the run can extend what it names; before any silo is asked."""
    assert config.extends is not None
    release = ReleaseName.parse(config.extends)
    if config.recipe not in EXTENDING_RECIPES:
        raise ConfigError(f"extends: {config.recipe} extends no releases; {', '.join(EXTENDING_RECIPES)} does")
    if plain_name(config.name) != release.name:
        raise ConfigError(f"extends: a run that extends {release} is its next version: call it {release.name}")
    store.entry(release)
    if (reason := store.withdrawn(release)) is not None:
        raise ConfigError(f"extends: {release} was withdrawn: {reason}")
    manifest, names = store.manifest(release), class_names(config.records)
    if manifest.shape != config.records.shape or names[: len(manifest.classes)] != manifest.classes:
        raise ConfigError(
            f"extends: {release} has records of shape {list(manifest.shape)} and the classes "
            f"{', '.join(manifest.classes)}: keep the shape, name these classes first, then new ones"
        )
    models = {name: load_file(store.path(release, name)) for name in manifest.files if name.endswith(".safetensors")}
    with np.load(store.path(release, "data/train.npz"), allow_pickle=False) as data:
        soft_labels = data.get("soft_labels")
        product = Product(to_unit_range(data["images"]), data["labels"], soft_labels)
    queries, receipts = manifest.restored_queries(), manifest.restored_receipts()
    return Parent(release, len(manifest.classes), product, _statistics(models), queries, receipts)


def extended(recipe: Recipe, task: Task, parameters: Any, parent: Parent) -> Steps:
    """The recipe's own steps, with the parent's statistics added to the new ones, and its records to the product.

    Where sums add up the parent's records are made anew, but for classes that nothing is known of any more.
    """
    steps = recipe.steps(task, parameters)
    step = next(steps)
    adding = Ask.of(step).query.added_up and task.schema.classes == parent.classes
    if adding and len(recipe.events(task, parameters, 1.0)) > 1:
        raise ConfigError(f"extends: more records of the classes of {parent.release} need stages = 1")
    shown = list[NoisyCounts]()
    while True:
        query = Ask.of(step).query
        kept = parent.statistics_for(query) if adding else None
        summed = yield step
        if kept is not None:
            summed = kept.added_to(summed)
        if query.added_up:
            shown.append(NoisyCounts.of(query, summed.blocks["counts"], summed.noise_variance**0.5))
        try:
            step = steps.send(summed)
        except StopIteration as stop:
            known = known_classes(shown) if shown else np.ones(task.schema.classes, dtype=np.bool_)
            return parent.joined(stop.value, known, ~known if adding else np.ones_like(known), task.schema.classes)


def _statistics(models: Mapping[str, Mapping[str, npt.NDArray[Any]]]) -> list[Statistics]:
    return [
        Statistics(decode(model["query"].tobytes()), model["values"], float(model["noise_std"][0]))
        for model in models.values()
        if {"query", "values", "noise_std"} <= model.keys()
    ]


def _joined_soft_labels(
    old: Product, chosen: Known, new: Product, added: Known, classes: int
) -> npt.NDArray[np.float32] | None:
    if old.soft_labels is None and new.soft_labels is None:
        return None
    return np.concatenate([_softly(old, classes)[chosen], _softly(new, classes)[added]])


def _softly(product: Product, classes: int) -> npt.NDArray[np.float32]:
    """Soft labels, or hard ones as such; no weight for classes that came later."""
    soft = np.eye(classes, dtype=np.float32)[product.labels] if product.soft_labels is None else product.soft_labels
    return np.pad(soft, ((0, 0), (0, classes - soft.shape[1]))).astype(np.float32)
