"""Private Evolution: images that live on as the silos' records vote for them.

Candidates of every class are proposed; each record votes for the one of its class that is nearest to it; those with
few votes die out, the others stay and are varied, less and less. Only noisy counts of votes are learned, so where the
images come from does not matter: from a procedure, a public folder, or a model that cannot be trained.
Reference: Lin et al., "Differentially private synthetic data via foundation model APIs 1: images".
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from silosynth.common.auxiliary import as_inputs, encode_records
from silosynth.common.backbones import backbone_for, encode_backbone
from silosynth.common.config import Choices
from silosynth.common.datasets.records import Features, Labels, to_unit_range
from silosynth.common.errors import ConfigError
from silosynth.common.events import Event, SampledGaussian
from silosynth.common.procedural.dice import Dice
from silosynth.common.queries import Votes
from silosynth.common.schema import Schema
from silosynth.common.statistics.spatial import SpatialFeatures
from silosynth.server.generators.base import Pool, PoolSteps
from silosynth.server.generators.population import Population
from silosynth.server.generators.proposals import Pixels, ProceduralSource, Proposals, Source
from silosynth.server.generators.proposals.remembered import Remembered
from silosynth.server.recipes.base import Array, Ask, Summed, Task
from silosynth.server.recipes.outlook import Crowd, Outlook, noise_of_class_means

_UNKNOWN = "0" * 64  # stands for images that are yet to be proposed
_BEARABLE = 1.4  # measured on held-out digits: accuracy 66 % without noise, 62 % at 0.5, 53 % at 1.0, 26 % at 1.9


class EvolutionParameters(Choices):
    """The paper: 5 to 17 steps, thousands of candidates, kept = 0, a diffusion model's images."""

    proposals: Source = Field(ProceduralSource(), description="where images come from: [parameters.proposals]")
    evolution_steps: int = Field(10, ge=1, le=1000, description="votes; more of them share the budget")
    candidates: int = Field(100, ge=2, le=10_000, description="of each class")
    kept: float = Field(0.5, ge=0, lt=1, description="share of candidates that may stay as they are")
    lookahead: int = Field(0, ge=0, le=64, description="votes are for the mean of so many variations; 0: for itself")
    threshold: float = Field(1.0, ge=0, description="votes to take off, in standard deviations of their noise")
    first_strength: float = Field(1.0, gt=0, le=1, description="of variations, at the first step")
    last_strength: float = Field(0.5, gt=0, le=1, description="of variations, at the last step and in the pool")
    backbone: str | None = Field(None, description="name or file; default: the shipped one for grey or colour images")


@dataclass(frozen=True)
class _Network:
    """Through whose eyes records and candidates are compared."""

    digest: str
    content: bytes
    features: int

    @classmethod
    def named(cls, name: str | None, schema: Schema) -> _Network:
        if not schema.is_image:
            raise ConfigError("evolution makes images, these records are rows of a table: choose another recipe")
        backbone = backbone_for(schema, name)
        content = encode_backbone(backbone)
        return cls(hashlib.sha256(content).hexdigest(), content, SpatialFeatures(backbone).size(schema.shape))


class Evolution:
    def __init__(self, parameters: EvolutionParameters) -> None:
        self._chosen = parameters

    def events(self, noise_multiplier: float) -> list[Event]:
        return [SampledGaussian(self._noise_of_a_step(noise_multiplier), count=self._chosen.evolution_steps)]

    def _noise_of_a_step(self, noise_multiplier: float) -> float:
        """So many Gaussian mechanisms of this multiplier are as private as one of that of the whole, exactly."""
        return noise_multiplier * math.sqrt(self._chosen.evolution_steps)

    def outlook(self, task: Task, noise_multiplier: float, crowd: Crowd) -> Outlook:
        network = _Network.named(self._chosen.backbone, task.schema)
        query = self._votes(task.schema, noise_multiplier, network, _UNKNOWN)
        noise = noise_of_class_means(query, crowd, dimension=query.per_class, bound=1.0)
        steps = self._chosen.evolution_steps
        return Outlook([query] * steps, noise, _BEARABLE, steps * (crowd.records + query.images))

    def steps(self, task: Task, noise_multiplier: float, per_class: int) -> PoolSteps:
        chosen, network = self._chosen, _Network.named(self._chosen.backbone, task.schema)
        proposals = _proposals(chosen.proposals, task)
        labels = np.repeat(np.arange(task.schema.classes), chosen.candidates)
        population = Population(proposals.fresh(labels, _seed(task, 0, 0)), task.schema.classes)
        for step in range(1, chosen.evolution_steps + 1):
            strength = self._strength(step)
            seen = population.views(proposals, chosen.lookahead, strength, _seed(task, step, 0))
            votes = _above(chosen.threshold, (yield self._ask(task, noise_multiplier, network, seen)))
            _report(task, step / chosen.evolution_steps, population, votes)
            if step == chosen.evolution_steps:
                break
            population = self._next(population, votes, proposals, strength, _seed(task, step, 1))
        return _pool(population, votes, per_class, proposals, strength, task)

    def _next(
        self, population: Population, votes: Array, proposals: Proposals, strength: float, seed: int
    ) -> Population:
        """The best stay; the others make room for variations of those that are voted for."""
        best = population.best(votes, int(self._chosen.kept * population.per_class))
        parents, _ = population.drawn(votes, population.per_class - best.per_class, seed)
        return best.beside(parents.varied(proposals, strength, seed))

    def _strength(self, step: int) -> float:
        """Falls by the same factor from step to step."""
        chosen = self._chosen
        share = (step - 1) / max(chosen.evolution_steps - 1, 1)
        return float(chosen.first_strength ** (1 - share) * chosen.last_strength**share)

    def _ask(self, task: Task, noise_multiplier: float, network: _Network, seen: Pixels) -> Ask:
        content = encode_records(seen)
        digest = hashlib.sha256(content).hexdigest()
        query = self._votes(task.schema, noise_multiplier, network, digest)
        return Ask(query, {digest: content, network.digest: network.content})

    def _votes(self, schema: Schema, noise_multiplier: float, network: _Network, candidates: str) -> Votes:
        return Votes(
            schema=schema,
            noise_multiplier=self._noise_of_a_step(noise_multiplier),
            backbone=network.digest,
            features=network.features,
            candidates=candidates,
            per_class=self._chosen.candidates,
            views=max(self._chosen.lookahead, 1),
        )


def _proposals(source: Source, task: Task) -> Proposals:
    return Remembered(source.opened(task.schema), task.workplace.checkpoints)


def _seed(task: Task, step: int, purpose: int) -> int:
    return int(Dice(task.seed, step, purpose).integers(1 << 31))


def _above(threshold: float, summed: Summed) -> Array:
    """What noise alone would hardly give."""
    return np.maximum(summed.blocks["votes"] - threshold * math.sqrt(summed.noise_variance), 0)


def _pool(
    population: Population, votes: Array, per_class: int, proposals: Proposals, strength: float, task: Task
) -> Pool:
    """Each candidate as often as it is voted for, once as it is, then in variations."""
    drawn, first = population.drawn(votes, per_class, _seed(task, 0, 1))
    images = drawn.images.copy()
    if not first.all():
        images[~first] = proposals.varied(images[~first], drawn.labels[~first], strength, _seed(task, 0, 2))
    return Pool(_inputs(images, task.schema), torch.from_numpy(drawn.labels))


def _inputs(images: Pixels, schema: Schema) -> Tensor:
    return as_inputs(to_unit_range(images.reshape(len(images), -1)), schema)


def _report(task: Task, share: float, population: Population, votes: Array) -> None:
    """The favourites of each class, and how many candidates have no vote beyond noise."""
    favourites = population.best(votes, population.per_class)

    def sketch() -> tuple[Features, Labels]:
        return to_unit_range(favourites.images), favourites.labels

    task.workplace.report(share, float((votes == 0).mean()), sketch, what="evolving images")
