"""Dosser: NDPDC's signals are sampled first, then matched as often as one likes.

Decoupled optimization and sampling (DOS): I1 signals are uploaded once; I2 >> I1 optimization steps go through them
again and again, each time in a new order, at no privacy cost. Subspace for error reduction (SER): features are centred
and projected onto d principal components of auxiliary records under the same network before they are clipped, so that
noise has fewer dimensions to spoil. Auxiliary records are procedural images, a public file, or an earlier release of
this federation: what that cost is in every silo's ledger, where events compose tighter than the paper's eps1 + eps2.
Partition and enlarge (PEA): a synthetic image holds four, which are cut out and enlarged before matching; the product
holds the enlarged ones, so whoever trains on it needs to know nothing. The result is an exponential average over the
steps. The signals are as in NDPDC, with its corrections.
"""

from __future__ import annotations

import hashlib
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import Field
from torch import Tensor

from silosynth.common.auxiliary import auxiliary_of_release
from silosynth.common.config import Section
from silosynth.common.devices import fast_type, pick_device
from silosynth.common.errors import ConfigError
from silosynth.common.events import Event
from silosynth.common.queries import FeatureSums
from silosynth.common.schema import Schema
from silosynth.common.signals import Signals
from silosynth.server.recipes.base import Ask, Product, Steps, Task
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
from silosynth.server.synthesis.descent import Descent
from silosynth.server.synthesis.enlarging import QUARTERS, enlarged_quarters
from silosynth.server.synthesis.matching import Matcher


class Parameters(SignalParameters):
    """The paper: signals = 10_000, steps = 200_000, projected = 500, width = 128."""

    steps: int = Field(2000, ge=1, le=10_000_000, description="I2, optimization steps")
    projected: int = Field(0, ge=0, description="d, dimensions of the subspace (SER); 0 for features as they are")
    auxiliary: Path | None = Field(
        None, description="records for SER, .safetensors or a release's train.npz; default: drawn"
    )
    enlarged: bool = Field(False, description="partition and enlarge (PEA): four records from each image")
    proportional: bool = Field(False, description="classes as large as noisy counts say, M records on average")
    averaging: float = Field(0.99, ge=0, lt=1, description="weight of the past in the average of the images")


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
        return [query.event() for query in _queries(task, parameters, noise_multiplier)]

    def outlook(self, task: Task, parameters: Parameters, crowd: Crowd) -> Outlook:
        queries = _queries(task, parameters, parameters.noise_for(task))
        return parameters.outlook(queries, crowd, parameters.steps)

    def steps(self, task: Task, parameters: Parameters) -> Steps:
        if parameters.enlarged and not task.schema.is_image:
            raise ConfigError("enlarged = true is for images, these records are rows of a table: leave it out")
        device, artifacts = pick_device("auto"), _auxiliary(parameters)
        queries = _queries(task, parameters, parameters.noise_for(task))
        evidence = Evidence(device)
        for query in queries:
            evidence.add(query, (yield Ask(query, artifacts)))
        signals = Signals(queries[0], artifacts.__getitem__, device)
        return _matched(signals, evidence, task, parameters)


def _queries(task: Task, parameters: Parameters, noise_multiplier: float) -> list[FeatureSums]:
    digest = next(iter(_auxiliary(parameters)), "")
    return parameters.queries(task, noise_multiplier, parameters.projected, digest)


def _auxiliary(parameters: Parameters) -> dict[str, bytes]:
    """The file of auxiliary records, if one is named, by its digest."""
    file = parameters.auxiliary
    if file is None:
        return {}
    try:
        content = auxiliary_of_release(file) if file.suffix == ".npz" else file.read_bytes()
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read ({error.strerror})") from error
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
        report(task, step / parameters.steps, loss, _as_used(descent.average, parameters), sizes)
    return product(_as_used(descent.average, parameters), sizes, task.schema)


def _sizes(evidence: Evidence, schema: Schema, parameters: Parameters) -> list[int]:
    """Synthetic records of each class."""
    if parameters.proportional:
        return proportional_sizes(evidence.drawn(), parameters.records_per_class * schema.classes)
    return [parameters.records_per_class] * schema.classes


def _as_used(records: Tensor, parameters: Parameters) -> Tensor:
    return enlarged_quarters(records) if parameters.enlarged else records
