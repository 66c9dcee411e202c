"""DP-GENG: DP-generated data guides the distillation.

(1) A generator makes a pool of images from noisy answers of the silos. (2) Extractors are trained on the pool, and the
synthetic images start as its most typical ones, four packed into each. (3) Through those extractors, instead of random
ones, the silos sum the features of Poisson samples, once; the synthetic images are moved to match. (4) An expert,
trained on the pool, learns from the silos' clipped gradients; it draws every image towards what it takes for its class.
Steps 1, 3 and 4 are paid for; their shares of the budget are public numbers. A step whose share is 0 is left out.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from silosynth.common.accounting import calibrate
from silosynth.common.auxiliary import as_inputs
from silosynth.common.config import Section
from silosynth.common.devices import fast_type, pick_device
from silosynth.common.errors import ConfigError
from silosynth.common.events import Event, SampledGaussian
from silosynth.common.networks.extractors import Network
from silosynth.common.procedural.dice import Dice
from silosynth.common.queries import FeatureSums, Query
from silosynth.common.schema import Schema
from silosynth.common.signals import Signals
from silosynth.server.generators.base import Pool
from silosynth.server.generators.choice import GeneratorChoice, MerfChoice
from silosynth.server.recipes.base import Ask, Product, Step, Steps, Summed, Task
from silosynth.server.recipes.feature_signals import Evidence, in_any_order, in_rounds, product, report
from silosynth.server.recipes.federated_descent import FederatedDescent, weights_artifact
from silosynth.server.recipes.outlook import Crowd, Outlook
from silosynth.server.recipes.privacy_split import divided
from silosynth.server.synthesis.descent import Descent
from silosynth.server.synthesis.enlarging import QUARTERS, enlarged_quarters
from silosynth.server.synthesis.expert import Expert
from silosynth.server.synthesis.generator_networks import tensors_of
from silosynth.server.synthesis.matching import Matcher
from silosynth.server.synthesis.pool_training import PoolTraining
from silosynth.server.synthesis.selection import any_of, packed, typical

_UNKNOWN = "0" * 64  # stands for a file that is yet to be made
_COUNT_WEIGHT = 0.15
_EXPERT_SEES = 4  # one image of so many in a step: a quarter of the time, and as good a say over several steps
_LEAST_PACKED = 16  # pixels a side: of smaller images, quarters show nothing
# What it bears of the noise that its generator bears; with merf on digits: accuracy 92 % without noise, 85 % at 1.2,
# 61 % at 2.2, 49 % at 3.1, 28 % at 4.2.
_FRAGILITY = 0.75


class Parameters(Section):
    """The paper: 20 extractors, lambda 1; its generators are diffusion models and Private Evolution."""

    generator: GeneratorChoice = Field(MerfChoice(), description='[parameters.generator] method = "merf", "evolution"')
    records_per_class: int = Field(10, ge=1, le=10_000)
    pool_per_class: int = Field(1000, ge=4, le=100_000, description="images of the pool")
    generator_share: float = Field(0.4, gt=0, description="of the budget (of mu^2), relative to the other shares")
    matching_share: float = Field(0.4, ge=0, description="of feature matching; 0 leaves it out")
    expert_share: float = Field(0.2, ge=0, description="of the expert's DP-SGD; 0: it knows the pool only")
    typical: bool = Field(True, description="start from typical images of the pool, else from any of it")
    guided: bool = Field(True, description="draw images towards what the expert takes for their class")
    packed: bool | None = Field(None, description="four records from each image; default: if it has 16 pixels a side")
    extractors: int = Field(10, ge=1, le=256)
    extractor_steps: int = Field(200, ge=1, description="batches of the pool that an extractor learns from")
    width: int = Field(32, ge=1, le=1024)
    augmentation: str = Field("color,crop,cutout,scale,rotate", description="add flip where it fits")
    signals: int = Field(100, ge=1, le=100_000, description="extractors in turn, each with an augmentation of its own")
    sampling_probability: float = Field(0.05, gt=0, le=1, description="of signals and of the expert's steps")
    expert_steps: int = Field(60, ge=1, le=100_000, description="of DP-SGD: questions to the silos")
    expert_rate: float = Field(2e-3, gt=0)
    expert_clip: float = Field(1.0, gt=0)
    expert_weight: float = Field(5.0, gt=0, description="of the expert's say beside the matching loss")
    divergence_weight: float = Field(1.0, ge=0, description="lambda")
    steps: int = Field(1000, ge=1, le=10_000_000, description="of the synthetic images")
    learning_rate: float = Field(0.05, gt=0)
    averaging: float = Field(0.99, ge=0, lt=1)
    at_once: int = Field(10, ge=1, description="images per class that a step looks at, drawn anew; at most all")

    @property
    def looked_at(self) -> int:
        """Images per class in a step."""
        return min(self.at_once, self.records_per_class)

    def fitting(self, schema: Schema) -> Parameters:
        """With `packed` decided."""
        fits = min(schema.shape[:2]) >= _LEAST_PACKED
        return self if self.packed is not None else self.model_copy(update={"packed": fits})


@dataclass(frozen=True)
class Noises:
    """Multipliers of the three paid steps; None for one that is left out."""

    generator: float
    matching: float | None
    expert: float | None

    @classmethod
    def of(cls, parameters: Parameters, noise_multiplier: float) -> Noises:
        """As the whole would cost about what one Gaussian mechanism of this multiplier does."""
        weights = {
            "generator": parameters.generator_share,
            "matching": parameters.matching_share,
            "expert": parameters.expert_share if parameters.guided else 0.0,
        }
        rate = parameters.sampling_probability
        sampled = {"matching": (rate, parameters.signals), "expert": (rate, parameters.expert_steps)}
        noises = divided(noise_multiplier, weights, sampled)
        return cls(noises["generator"], noises.get("matching"), noises.get("expert"))


class DpGeng:
    name = "dpgeng"
    parameters: type[Section] = Parameters
    levers: tuple[dict[str, Any], ...] = ({"expert_share": 0.0}, {"matching_share": 0.0})
    post_processing = (
        "A generator makes images of noisy answers of the silos. The synthetic images start as typical ones of them "
        "and are moved until networks trained on such images see in them the silos' noisy sums of features. "
        "No real record was ever copied or looked at."
    )

    def events(self, task: Task, parameters: Parameters, noise_multiplier: float) -> list[Event]:
        noises, rate = Noises.of(parameters, noise_multiplier), parameters.sampling_probability
        sampled = ((noises.matching, parameters.signals), (noises.expert, parameters.expert_steps))
        return [
            *parameters.generator.opened().events(noises.generator),
            *(SampledGaussian(noise, rate, count) for noise, count in sampled if noise is not None),
        ]

    def _noises(self, task: Task, parameters: Parameters) -> Noises:
        _check(task, parameters.fitting(task.schema))
        whole = calibrate(lambda z: self.events(task, parameters, z), task.epsilon, task.delta)
        return Noises.of(parameters, whole)

    def outlook(self, task: Task, parameters: Parameters, crowd: Crowd) -> Outlook:
        noises, parameters = self._noises(task, parameters), parameters.fitting(task.schema)
        pool = parameters.generator.opened().outlook(task, noises.generator, crowd)
        queries, training = _later_queries(task, parameters, noises), _training(task, parameters)
        drawn = parameters.sampling_probability * sum(query.event().count for query in queries) * crowd.records
        images = parameters.looked_at * _parts(parameters) * task.schema.classes
        return Outlook(
            [*pool.queries, *queries],
            pool.noise_to_signal,
            _FRAGILITY * pool.bearable,
            pool.silo_views + round(drawn),
            pool.server_views + parameters.steps * images + (parameters.extractors + 1) * training.views,
        )

    def steps(self, task: Task, parameters: Parameters) -> Steps:
        noises, parameters = self._noises(task, parameters), parameters.fitting(task.schema)
        _later_queries(task, parameters, noises)  # what is wrong with them is told before anybody pays
        pool = yield from parameters.generator.opened().steps(task, noises.generator, parameters.pool_per_class)
        # Matching looks through all extractors, the choice of typical images through one.
        count = parameters.extractors if noises.matching is not None else int(parameters.typical)
        extractors = _extractors(task, pool, parameters, count)
        start = _start(pool, extractors, task, parameters)
        matching = None
        if noises.matching is not None:
            matching = yield from _matching(task, extractors, parameters, noises.matching)
        expert = None
        if parameters.guided:
            network = yield from _expert(task, pool, parameters, noises.expert)
            expert = Expert(network, pool, parameters.divergence_weight)
        made = _distilled(task, start, matching, expert, parameters)
        return _with_models(made, pool, expert, task.schema)


def _with_models(made: Product, pool: Pool, expert: Expert | None, schema: Schema) -> Product:
    """What was paid for on the way is handed out, too: the generator, and the expert as the recipe's own classifier."""
    if expert is None:
        return replace(made, models=pool.models)
    models = {**pool.models, "expert": tensors_of(expert.network)}
    return replace(made, models=models, classifier=lambda features: expert.classes(as_inputs(features, schema)).numpy())


@dataclass(frozen=True)
class _Matching:
    """What the silos' records look like to the extractors."""

    signals: Signals
    evidence: Evidence
    clip: float


def _check(task: Task, parameters: Parameters) -> None:
    if not task.schema.is_image:
        raise ConfigError("dpgeng makes images, these records are rows of a table: choose another recipe, such as merf")
    needed = parameters.records_per_class * _parts(parameters)
    if needed > parameters.pool_per_class:
        raise ConfigError(f"{needed} images of each class are to be chosen from the pool: raise pool_per_class to that")


def _later_queries(task: Task, parameters: Parameters, noises: Noises) -> list[Query]:
    queries = list[Query]()
    if noises.matching is not None:
        queries += _feature_sums(task, parameters, noises.matching, _UNKNOWN)
    if noises.expert is not None:
        queries += [_descent(parameters).query(task, noises.expert, _UNKNOWN)] * parameters.expert_steps
    return queries


def _feature_sums(task: Task, parameters: Parameters, noise_multiplier: float, weights: str) -> list[FeatureSums]:
    first = FeatureSums(
        schema=task.schema,
        noise_multiplier=noise_multiplier,
        first=0,
        signals=1,
        sampling_probability=parameters.sampling_probability,
        network="convnet",
        width=parameters.width,
        seed=task.seed,
        augmentation=parameters.augmentation,
        projected=0,
        auxiliary="",
        clip=1.0,
        count_weight=_COUNT_WEIGHT,
        weights=weights,
    )
    return in_rounds(first, parameters.signals)


def _descent(parameters: Parameters) -> FederatedDescent:
    return FederatedDescent(
        width=parameters.width,
        steps=parameters.expert_steps,
        sampling_probability=parameters.sampling_probability,
        clip=parameters.expert_clip,
        learning_rate=parameters.expert_rate,
    )


def _extractors(task: Task, pool: Pool, parameters: Parameters, count: int) -> list[Network]:
    training, made = _training(task, parameters), []
    for number in range(count):
        made.append(training.network(pool, task.seed, number))
        task.workplace.report((number + 1) / count, 0.0, what="training extractors")
    return made


def _training(task: Task, parameters: Parameters) -> PoolTraining:
    """Of extractors, and of an expert before it hears the silos."""
    steps, augmentation = parameters.extractor_steps, parameters.augmentation
    return PoolTraining(task.schema, parameters.width, steps, augmentation, task.workplace.checkpoints)


def _start(pool: Pool, extractors: list[Network], task: Task, parameters: Parameters) -> Tensor:
    count = parameters.records_per_class * _parts(parameters)
    chosen = typical(pool, extractors[0], count, task.seed) if parameters.typical else any_of(pool, count, task.seed)
    return packed(chosen) if parameters.packed else chosen


def _matching(
    task: Task, extractors: list[Network], parameters: Parameters, noise_multiplier: float
) -> Generator[Step, Summed, _Matching]:
    digest, content = weights_artifact(extractors)
    queries, evidence = _feature_sums(task, parameters, noise_multiplier, digest), Evidence(pick_device("auto"))
    for query in queries:
        evidence.add(query, (yield Ask(query, {digest: content})))
    return _Matching(Signals(queries[0], {digest: content}.__getitem__, evidence.device), evidence, queries[0].clip)


def _expert(
    task: Task, pool: Pool, parameters: Parameters, noise_multiplier: float | None
) -> Generator[Step, Summed, Network]:
    """Trained on the pool, then by DP-SGD across the silos."""
    network = _training(task, parameters).network(pool, task.seed, parameters.extractors)
    if noise_multiplier is not None:
        yield from _descent(parameters).train(task, network, noise_multiplier, what="training an expert")
    return network


def _distilled(
    task: Task, start: Tensor, matching: _Matching | None, expert: Expert | None, parameters: Parameters
) -> Product:
    """The images after all steps, averaged over the last ones; as they start, if there is nothing to learn from."""
    classes, each = task.schema.classes, parameters.records_per_class
    sizes = [each * _parts(parameters)] * classes
    if matching is None and expert is None:
        return product(_as_used(start, parameters), sizes, task.schema)
    device = pick_device("auto") if matching is None else matching.evidence.device
    descent = Descent(start.to(device), parameters.learning_rate, parameters.steps, parameters.averaging)
    say, dice = _Say(matching, expert, classes, parameters, device), Dice(task.seed, each)
    for step, index in enumerate(islice(in_any_order(parameters.signals, task.seed), parameters.steps), start=1):
        some = dice.uniform(classes, each).argsort(dim=1)[:, : parameters.looked_at]
        rows = (some + each * torch.arange(classes)[:, None]).flatten()
        loss = say.loss(_as_used(descent.records[rows], parameters), index, step)
        descent.step(loss)
        report(task, step / parameters.steps, loss, _as_used(descent.average, parameters), sizes)
    return product(_as_used(descent.average, parameters), sizes, task.schema)


class _Say:
    """What matching and expert say of as many images of each class as a step looks at, sorted by class."""

    def __init__(
        self,
        matching: _Matching | None,
        expert: Expert | None,
        classes: int,
        parameters: Parameters,
        device: torch.device,
    ) -> None:
        self._matching, self._expert = matching, None if expert is None else expert.to(device)
        self._weight = parameters.expert_weight
        sizes = [parameters.looked_at * _parts(parameters)] * classes
        self._labels = torch.arange(classes, device=device).repeat_interleave(sizes[0])
        if matching is not None:
            self._matcher = Matcher(matching.signals, matching.clip, sizes, fast_type(device))
            self._drawn = matching.evidence.drawn()

    def loss(self, images: Tensor, index: int, step: int) -> Tensor:
        """The expert, whose say is a mean over images, looks at every fourth only, at others in the next step."""
        loss = torch.zeros((), device=images.device)
        if self._matching is not None:
            loss = loss + self._matcher.loss(images, index, self._matching.evidence.sums(index), self._drawn)
        if self._expert is not None:
            every = min(_EXPERT_SEES, len(images))
            turn = slice(step % every, None, every)
            loss = loss + self._weight * self._expert.loss(images[turn], self._labels[turn])
        return loss


def _parts(parameters: Parameters) -> int:
    """Records that an image holds."""
    return QUARTERS if parameters.packed else 1


def _as_used(images: Tensor, parameters: Parameters) -> Tensor:
    return enlarged_quarters(images) if parameters.packed else images
