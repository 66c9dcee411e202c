"""evaluation.json."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from silosynth.common.config import Section
from silosynth.common.publication.manifest import Code
from silosynth.server.evaluation.calibration import Calibration
from silosynth.server.evaluation.intervals import Interval
from silosynth.server.evaluation.likeness import Likeness


class ArchitectureScore(Section):
    """One row of the cross-architecture table."""

    accuracy: float  # mean over seeds
    accuracy_spread: float  # standard deviation over seeds
    accuracy_by_seed: tuple[float, ...]
    accuracy_interval: Interval
    accuracy_ensemble: float  # of the seeds' averaged predictions
    steps: int


class SiloScore(Section):
    """Of a model trained on the synthetic data, on all records of the silos that answered: noisy, and paid for.

    These are the records the data was made of, as far as privacy lets it know them.
    """

    model: str  # SHA-256 of its file: a public backbone with a new head
    accuracy: float | None  # None where noise drowns the number of records
    accuracy_interval: Interval | None
    silos: int
    epsilon: float  # what each of them paid for this alone, at most
    delta: float


class Baseline(Section):
    """What another way makes of the same silos' answers, tested in the same way: asked for in the same run, charged."""

    epsilon: float | None  # what each silo paid for this alone, at most, at the same delta; None: without any privacy
    accuracy: float
    own_classifier_accuracy: float | None = None
    cpu_seconds: float


class Evaluation(Section):
    """Accuracies are shares of the public test records.

    `accuracy` is the headline: of the model declared in run.toml, whichever way the others turn out. What has a default
    was added after the first release folders were written.
    """

    version: Literal[1] = 1
    release: str | None = None  # where a finished release was evaluated anew: its name and version
    tested_on: str | None = None  # likewise: the public records, as they were named
    code: Code | None = None  # which made this evaluation, where no manifest beside it tells
    model: str
    protocol: str = "quick"
    steps: int
    seeds: tuple[int, ...]
    accuracy: float  # mean over seeds of a model trained on the synthetic data
    accuracy_spread: float  # standard deviation over seeds
    accuracy_interval: Interval | None = None
    accuracy_by_seed: tuple[float, ...]
    accuracy_ensemble: float | None = None  # of the seeds' averaged predictions
    accuracy_by_class: tuple[float | None, ...]  # of all seeds together; None where the test set lacks the class
    worst_class: int
    worst_class_accuracy: float
    by_architecture: dict[str, ArchitectureScore] = Field(default_factory=dict)  # `model` first; empty if not asked for
    accuracy_ensemble_of_architectures: float | None = None  # averaged predictions of all of them, all seeds
    calibration: Calibration | None = None
    likeness: Likeness | None = None  # to public records
    own_classifier_accuracy: float | None  # of the recipe's own classifier, where it has one
    floor: float  # always answering the test set's largest class
    baselines: dict[str, Baseline] = Field(default_factory=dict)  # by name; where run.toml asks for them
    ceiling: float | None  # non-private training on pooled data, where a simulation knows it
    synthetic_records: int
    test_records: int
    cpu_seconds: float
    on_silos: SiloScore | None = None  # where run.toml asks for it and silos allow it
