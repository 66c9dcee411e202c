"""Dosser: NDPDC's signals are sampled first, then matched as often as one likes.

Decoupled optimization and sampling (DOS): I1 signals are uploaded once; I2 >> I1 optimization steps go through them
again and again, each time in a new order, at no privacy cost. Subspace for error reduction (SER): features are centred
and projected onto d principal components of auxiliary records under the same network before they are clipped, so that
noise has fewer dimensions to spoil. Auxiliary records are procedural images, a public file, an earlier release of this
federation, or what a generator makes first, from a share of the budget: all of it is in every silo's ledger, where
events compose tighter than the paper's eps1 + eps2.
Partition and enlarge (PEA): a synthetic image holds four, which are cut out and enlarged before matching; the product
holds the enlarged ones, so whoever trains on it needs to know nothing. The result is an exponential average over the
steps. The signals are as in NDPDC, with its corrections.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator
from torch import Tensor

from silosynth.common.accounting import calibrate
from silosynth.common.auxiliary import auxiliary_of_release, encode_records
from silosynth.common.config import Section
from silosynth.common.devices import fast_type, pick_device
from silosynth.common.errors import ConfigError
from silosynth.common.events import Event, SampledGaussian
from silosynth.common.schema import Schema
from silosynth.common.signals import Signals
from silosynth.server.generators.choice import GeneratorChoice
from silosynth.server.recipes.base import Ask, Product, Step, Steps, Summed, Task
from silosynth.server.recipes.feature_signals import (
    Evidence,
    SignalParameters,
    faint_noise,
    in_any_order,
    product,
    proportional_sizes,
    report,
)
from silosynth.server.recipes.outlook import Crowd, Outlook
from silosynth.server.recipes.privacy_split import divided
from silosynth.server.synthesis.descent import Descent
from silosynth.server.synthesis.enlarging import QUARTERS, enlarged_quarters
from silosynth.server.synthesis.matching import Matcher

_UNKNOWN = "0" * 64  # stands for records that are yet to be made
_GENERATED = 1000  # auxiliary records; the paper's number
_GENERATOR_SHARE = 0.3


class Parameters(SignalParameters):
    """The paper: signals = 10_000, steps = 200_000, projected = 500, width = 128."""

    steps: int = Field(2000, ge=1, le=10_000_000, description="I2, optimization steps")
    projected: int = Field(0, ge=0, description="d, dimensions of the subspace (SER); 0 for features as they are")
    auxiliary: Path | None = Field(
        None, description="records for SER, .safetensors or a release's train.npz; default: drawn"
    )
    generator: GeneratorChoice | None = Field(
        None, description='makes records for SER: [parameters.generator] method = "merf", "evolution"'
    )
    generator_share: float | None = Field(
        None, gt=0, lt=1, description=f"of the budget (of mu^2) for the generator; default: {_GENERATOR_SHARE}"
    )
    enlarged: bool = Field(False, description="partition and enlarge (PEA): four records from each image")
    proportional: bool = Field(False, description="classes as large as noisy counts say, M records on average")
    averaging: float = Field(0.99, ge=0, lt=1, description="weight of the past in the average of the images")

    @model_validator(mode="after")
    def _generator_is_used(self) -> Self:
        if self.generator is None and self.generator_share is not None:
            raise ValueError("generator_share is set, but no generator: add [parameters.generator], or leave it out")
        if self.generator is not None and not self.projected:
            raise ValueError("a generator makes records for SER: set projected, too")
        if self.generator is not None and (self.auxiliary or self.noise_multiplier is not None):
            raise ValueError("with a generator, leave out auxiliary and noise_multiplier")
        return self


class Dosser:
    name = "dosser"
    parameters: type[Section] = Parameters
    post_processing = (
        "Synthetic records start as random noise from a public seed and are moved by many gradient steps until their "
        "features resemble the silos' noisy sums of features, which are used again and again; the result is an average "
        "over the steps. Each stands for many records of its class, and no real record was ever copied or looked at."
    )
    levers: tuple[dict[str, Any], ...] = ({"width": 16},)

    def events(self, task: Task, parameters: Parameters, noise_multiplier: float) -> list[Event]:
        """With a generator, the multiplier is that of one Gaussian mechanism as private as all together."""
        noises = _Noises.of(parameters, noise_multiplier)
        signals = SampledGaussian(noises.signals, parameters.sampling_probability, parameters.signals)
        if parameters.generator is None:
            return [signals]
        return [*parameters.generator.opened().events(noises.generator), signals]

    def outlook(self, task: Task, parameters: Parameters, crowd: Crowd) -> Outlook:
        noises, auxiliary = self._noises(task, parameters), _auxiliary(parameters)
        if parameters.generator is None:
            return _signals_outlook(task, parameters, noises, next(iter(auxiliary), ""), crowd)
        signals = _signals_outlook(task, parameters, noises, _UNKNOWN, crowd)
        pool = parameters.generator.opened().outlook(task, noises.generator, crowd)
        return replace(
            signals,
            queries=[*pool.queries, *signals.queries],
            silo_views=pool.silo_views + signals.silo_views,
            server_views=pool.server_views + signals.server_views,
        )

    def steps(self, task: Task, parameters: Parameters) -> Steps:
        if parameters.enlarged and not task.schema.is_image:
            raise ConfigError("enlarged = true is for images, these records are rows of a table: leave it out")
        device, noises = pick_device("auto"), self._noises(task, parameters)
        artifacts = _auxiliary(parameters)
        if parameters.generator is not None:
            artifacts = yield from _generated(task, parameters.generator, noises.generator)
        queries = parameters.queries(task, noises.signals, parameters.projected, next(iter(artifacts), ""))
        evidence = Evidence(device)
        for query in queries:
            evidence.add(query, (yield Ask(query, artifacts)))
        signals = Signals(queries[0], artifacts.__getitem__, device)
        return _matched(signals, evidence, task, parameters)

    def _noises(self, task: Task, parameters: Parameters) -> _Noises:
        if parameters.generator is None:
            return _Noises(parameters.noise_for(task))
        return _Noises.of(parameters, calibrate(lambda z: self.events(task, parameters, z), task.epsilon, task.delta))


@dataclass(frozen=True)
class _Noises:
    signals: float
    generator: float = 0.0  # of no use without one

    @classmethod
    def of(cls, parameters: Parameters, noise_multiplier: float) -> _Noises:
        if parameters.generator is None:
            return cls(noise_multiplier)
        share = parameters.generator_share or _GENERATOR_SHARE
        sampled = {"signals": (parameters.sampling_probability, parameters.signals)}
        return cls(**divided(noise_multiplier, {"generator": share, "signals": 1 - share}, sampled))


def _signals_outlook(task: Task, parameters: Parameters, noises: _Noises, auxiliary: str, crowd: Crowd) -> Outlook:
    queries = parameters.queries(task, noises.signals, parameters.projected, auxiliary)
    return parameters.outlook(queries, crowd, parameters.steps)


def _generated(
    task: Task, chosen: GeneratorChoice, noise_multiplier: float
) -> Generator[Step, Summed, dict[str, bytes]]:
    """Auxiliary records of a generator's making, by their digest."""
    per_class = -(-_GENERATED // task.schema.classes)
    pool = yield from chosen.opened().steps(task, noise_multiplier, per_class)
    made = product(pool.records, [per_class] * task.schema.classes, task.schema)
    return _by_digest(encode_records(made.records(task.schema).features))


def _auxiliary(parameters: Parameters) -> dict[str, bytes]:
    """The file of auxiliary records, if one is named, by its digest."""
    file = parameters.auxiliary
    if file is None:
        return {}
    try:
        return _by_digest(auxiliary_of_release(file) if file.suffix == ".npz" else file.read_bytes())
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read ({error.strerror})") from error


def _by_digest(content: bytes) -> dict[str, bytes]:
    return {hashlib.sha256(content).hexdigest(): content}


def _matched(signals: Signals, evidence: Evidence, task: Task, parameters: Parameters) -> Product:
    """The exponential average of the records over I2 steps."""
    held = _sizes(evidence, task.schema, parameters)
    start = faint_noise(task.schema, sum(held), task.seed).to(evidence.device)
    descent = Descent(start, parameters.learning_rate, parameters.steps, parameters.averaging)
    drawn = evidence.drawn()
    sizes = [QUARTERS * size for size in held] if parameters.enlarged else held
    matcher = Matcher(signals, parameters.clip, sizes, fast_type(evidence.device))
    for step, index in enumerate(islice(in_any_order(parameters.signals, task.seed), parameters.steps), start=1):
        loss = matcher.loss(_as_used(descent.records, parameters), index, evidence.sums(index), drawn)
        descent.step(loss)
        report(task, step / parameters.steps, loss, lambda: _as_used(descent.average, parameters), sizes)
    return product(_as_used(descent.average, parameters), sizes, task.schema)


def _sizes(evidence: Evidence, schema: Schema, parameters: Parameters) -> list[int]:
    """Synthetic records of each class."""
    if parameters.proportional:
        return proportional_sizes(evidence.drawn(), parameters.records_per_class * schema.classes)
    return [parameters.records_per_class] * schema.classes


def _as_used(records: Tensor, parameters: Parameters) -> Tensor:
    return enlarged_quarters(records) if parameters.enlarged else records
