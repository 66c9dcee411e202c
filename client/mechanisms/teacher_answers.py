"""Teacher answers (DPSD, FedDPSD).

Released: for each of b public inputs the sum over the silo's teachers of their probabilities, or of their gradients for
the student, each cut to length 1, or the plain teacher's class, told by randomized response among k classes the student
names.
Neighbours and sensitivity:
- plain: any two datasets of the silo. The teacher may become any other, a gradient of length at most 1 any other such:
  each answer moves by 2 at most, a batch by 2 sqrt(b). Probabilities are never negative, so that they move by sqrt(2)
  at most, a batch by sqrt(2 b). (The paper's bound is 2 beta sqrt(c) of one answer, over a noise
  it forgets to scale by beta.) A guarantee for all records together is also one for each.
- sub-teachers: datasets that differ by one record added or removed. Its own bytes say which part it is in, so one
  teacher changes, the sum of all as above, and their mean by 2 / K. (A record that is replaced changes two of them.)
- dp-sgd and label-dp: 0, given the weights, which an inner query for training has charged; no record is seen here.
Both are cut to length 1, and to an integer grid towards zero. Gradients have noise on all classes, not only on the k
kept ones: which these are depends on the teacher. Among which classes a response is given does not: the student chooses
them.
Event: one Gaussian mechanism for the batch. Responses tell two teachers apart no better than it does, each for itself
and hence together; one that the student's choice does not hold is answered by any of it, so that every answer is
possible whatever the teacher says (the paper's Eq. (5) has impossible ones, and with them no guarantee).
Reference: DPSD, Algorithm 2; methods.md, section 5, says what is corrected.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from silosynth.client.guard.mechanism import Bench
from silosynth.client.mechanisms.exact_sums import clipped
from silosynth.client.mechanisms.public_networks import view_for
from silosynth.client.mechanisms.teachers import teachers_of
from silosynth.common.datasets.records import Records
from silosynth.common.networks.weights import with_weights
from silosynth.common.queries import TeacherAnswers
from silosynth.common.teaching.distillation import all_alike_if_no_numbers, kept_gradients, named_choices
from silosynth.common.teaching.inputs import decode_inputs
from silosynth.common.teaching.views import draw_classifier

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def teacher_answers(query: TeacherAnswers, records: Records, bench: Bench) -> Integers:
    inputs, student = decode_inputs(bench.artifact(query.inputs), query)
    seen = view_for(query, bench).of_records(inputs).cpu()
    teachers = _trained_privately(query, bench) if query.trained_privately else teachers_of(query, records, bench)
    total = np.zeros(query.layout().size, dtype=np.int64)
    for weights in teachers:
        total += answer(query, _probabilities(query, weights, seen), student.astype(np.float64)).reshape(-1)
    return total


def answer(query: TeacherAnswers, teacher: Floats, student: Floats) -> Integers:
    """One teacher's: whatever its probabilities are, no row is longer than 1."""
    shares = np.clip(all_alike_if_no_numbers(teacher), 0.0, 1.0)
    if query.answers == "classes":
        return named_choices(shares, student, query.kept)
    if query.answers == "gradients":
        shares = kept_gradients(shares, student, query.kept, query.other_weight)
    return clipped(shares, 0.0, 1.0, query.grid())


def _trained_privately(query: TeacherAnswers, bench: Bench) -> Tensor:
    training = query.training()
    weights = bench.ask(training, {}) * training.grid()
    return torch.from_numpy(weights.astype(np.float32))[None]


@torch.inference_mode()
def _probabilities(query: TeacherAnswers, weights: Tensor, seen: Tensor) -> Floats:
    classifier = draw_classifier(query.network, query.schema, query.features, query.seed)
    return np.asarray(with_weights(classifier, weights.clone())(seen).double().softmax(1).numpy())
