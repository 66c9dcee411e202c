"""NDPDC: synthetic records whose features match noisy sums of features (Zheng and Li, Algorithm 2), corrected.

For each of I signals: draw a network and an augmentation; every silo sums the clipped features of a Poisson sample of
each class and adds noise; one gradient step brings the features of the M synthetic records of each class nearer to
that. Signals are used once, in order. The paper's rate L / N_c differs by class and tells N_c; here one public rate
serves all classes, and how many records were drawn is estimated from noisy counts that travel with the sums.
"""

from __future__ import annotations

from typing import Any

from silosynth.common.config import Section
from silosynth.common.devices import fast_type, pick_device
from silosynth.common.events import Event
from silosynth.common.signals import Signals
from silosynth.server.recipes.base import Steps, Task
from silosynth.server.recipes.feature_signals import Evidence, SignalParameters, faint_noise, product, report
from silosynth.server.recipes.outlook import Crowd, Outlook
from silosynth.server.synthesis.descent import Descent
from silosynth.server.synthesis.matching import Matcher

_NO_ARTIFACTS: dict[str, bytes] = {}


class Parameters(SignalParameters):
    """The paper: records_per_class = 50, signals = 10_000, width = 128, noise_multiplier = 1."""


class Ndpdc:
    name = "ndpdc"
    parameters: type[Section] = Parameters
    post_processing = (
        "Synthetic records start as random noise from a public seed and are moved, one gradient step a signal, until "
        "their features resemble the silos' noisy sums of features: each stands for many records of its class, and "
        "no real record was ever copied or looked at."
    )
    levers: tuple[dict[str, Any], ...] = ({"width": 16},)

    def events(self, task: Task, parameters: Parameters, noise_multiplier: float) -> list[Event]:
        return [query.event() for query in parameters.queries(task, noise_multiplier)]

    def outlook(self, task: Task, parameters: Parameters, crowd: Crowd) -> Outlook:
        queries = parameters.queries(task, parameters.noise_for(task))
        return parameters.outlook(queries, crowd, steps=parameters.signals)

    def steps(self, task: Task, parameters: Parameters) -> Steps:
        device = pick_device("auto")
        evidence = Evidence(device)
        sizes = [parameters.records_per_class] * task.schema.classes
        start = faint_noise(task.schema, sum(sizes), task.seed).to(device)
        descent = Descent(start, parameters.learning_rate, parameters.signals)
        for query in parameters.queries(task, parameters.noise_for(task)):
            evidence.add(query, (yield query))
            signals = Signals(query, _NO_ARTIFACTS.__getitem__, device)
            matcher = Matcher(signals, query.clip, sizes, fast_type(device))
            drawn = evidence.drawn()
            for index in range(query.first, query.first + query.signals):
                loss = matcher.loss(descent.records, index, evidence.sums(index), drawn)
                descent.step(loss)
                report(task, (index + 1) / parameters.signals, loss, lambda: descent.records, sizes)
        return product(descent.records, sizes, task.schema)
