"""Label training: a teacher who protects labels only.

Released: the weights of a small classifier, on a grid.
Neighbours: datasets of one silo in which one record has another label. Which records there are, and all about them but
their labels, counts as public: the silo's people have declared so.
Sensitivity: 0, given the labels as they were told. Each is told once, by randomized response among the k classes that a
prior finds most probable: kept with probability e^epsilon / (e^epsilon + k - 1), else another one, all alike; where it
is none of the k, any of them, all alike. No answer is more than e^epsilon times as likely for one label as for another.
The prior does not look at the label it is for: it knows nothing about the first half of the records, and what a
classifier of the first half's told labels thinks about the second. It chooses the k that keeps most labels. Halves and
order are by a hash of the records without their labels.
Event: one response of every label. The coins are the guard's own. If the guard is killed before the weights are in the
ledger all of it is drawn anew; nobody has seen anything then.
Reference: Ghazi et al., "Deep learning with label differential privacy" (RRWithPrior, two stages).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from silosynth.client.guard.entropy import Entropy
from silosynth.client.guard.mechanism import Bench
from silosynth.client.guard.noise import randomized_response
from silosynth.client.mechanisms.exact_sums import report_steps
from silosynth.client.mechanisms.public_networks import view_for
from silosynth.client.mechanisms.teacher_training import hashes_of, taught
from silosynth.common.datasets.records import Records
from silosynth.common.networks.weights import flat_weights
from silosynth.common.procedural.dice import Dice
from silosynth.common.queries import LabelTraining
from silosynth.common.queries.base import Response
from silosynth.common.teaching.distillation import all_alike_if_no_numbers
from silosynth.common.teaching.views import draw_classifier

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def label_training(query: LabelTraining, records: Records, bench: Bench) -> Integers:
    ordered = records.take(order_without_labels(records, query.seed))
    seen, half = view_for(query, bench).of_records(ordered.flat()).cpu(), len(ordered) // 2
    nothing_known = np.full((half, query.schema.classes), 1 / query.schema.classes)
    first = told_labels(query, ordered.labels[:half], nothing_known, bench.entropy)
    report_steps(bench.report, 0, 1, 3)
    prior = _probabilities(_trained(query, seen[:half], first, 0), seen[half:])
    second = told_labels(query, ordered.labels[half:], prior, bench.entropy)
    report_steps(bench.report, 1, 2, 3)
    weights = flat_weights(_trained(query, seen, np.concatenate([first, second]), 1))
    report_steps(bench.report, 2, 3, 3)
    return np.rint(weights.double().numpy() / query.grid()).astype(np.int64)


def order_without_labels(records: Records, seed: int) -> Integers:
    """One that no label has a say in, whatever the order they came in."""
    return np.argsort(hashes_of((record.tobytes() for record in records.features), seed), kind="stable")


def told_labels(query: LabelTraining, labels: Integers, prior: Floats, entropy: Entropy) -> Integers:
    """By randomized response among as many of the prior's likeliest classes as keep most labels."""
    if query.noise_multiplier == 0:
        return labels
    likeliest = np.argsort(-prior, axis=1, kind="stable")
    kept = np.array([query.kept_probability(choices) for choices in range(1, query.schema.classes + 1)])
    choices = 1 + (np.take_along_axis(prior, likeliest, axis=1).cumsum(axis=1) * kept).argmax(axis=1)
    told = likeliest[:, 0].copy()  # of one choice it is the answer, whatever the label
    for number in range(2, query.schema.classes + 1):
        rows = np.flatnonzero(choices == number)
        named = (likeliest[rows, :number] == labels[rows, None]).astype(np.int64)
        answered = randomized_response(named, Response(number, float(kept[number - 1])), entropy)
        told[rows] = likeliest[rows, answered.argmax(axis=1)]
    return told


def _trained(query: LabelTraining, seen: Tensor, told: Integers, stage: int) -> torch.nn.Module:
    classifier = draw_classifier(query.network, query.schema, query.features, query.seed)
    return taught(classifier, seen, torch.from_numpy(told), query.steps, Dice(query.seed, stage))


@torch.inference_mode()
def _probabilities(classifier: torch.nn.Module, seen: Tensor) -> Floats:
    return all_alike_if_no_numbers(classifier(seen).double().softmax(1).numpy())
