"""What a teacher says about an input, in the terms of DPSD: a gradient for the student, or a class.

The loss is that of decoupled distillation: with r the teacher's first class, t and s the teacher's and the student's
probabilities, it is KL of (t_r, 1 - t_r) from (s_r, 1 - s_r), plus lambda (1 - t_r) times KL of the other classes'
shares among themselves. Its gradient is with regard to the student's logits. At lambda = 1 it is s - t: one step along
it makes the student what the teacher is, and the mean over teachers is a step to their mean.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

_LEAST_REST = 1e-9


def kept_gradients(teacher: Array, student: Array, kept: int, other_weight: float) -> Array:
    """One row an input: the `kept` largest coordinates of the gradient, of any length."""
    gradients = _gradients(teacher, student, other_weight)
    largest = np.argsort(-np.abs(gradients), axis=1, kind="stable")[:, :kept]
    masked = np.zeros_like(gradients)
    np.put_along_axis(masked, largest, np.take_along_axis(gradients, largest, axis=1), axis=1)
    return masked


def _gradients(teacher: Array, student: Array, other_weight: float) -> Array:
    first = teacher.argmax(axis=1)[:, None]
    is_first = np.arange(teacher.shape[1]) == first
    told, thought = (np.take_along_axis(p, first, axis=1) for p in (teacher, student))
    told_shares, thought_shares = (_shares_of_rest(p, is_first) for p in (teacher, student))
    of_first = (thought - told) * (is_first - thought_shares)
    return np.asarray(of_first + other_weight * (1 - told) * (thought_shares - told_shares))


def _shares_of_rest(probabilities: Array, is_first: npt.NDArray[np.bool_]) -> Array:
    rest = np.where(is_first, 0, probabilities)
    return np.asarray(rest / np.maximum(rest.sum(axis=1, keepdims=True), _LEAST_REST))


def likeliest(student: npt.NDArray[np.floating], kept: int) -> npt.NDArray[np.int64]:
    """The classes among which responses are given, the student's first one first."""
    return np.argsort(-student, axis=1, kind="stable")[:, :kept]


def named_choices(teacher: Array, student: npt.NDArray[np.floating], kept: int) -> npt.NDArray[np.int64]:
    """One row an input: 1 where the teacher's class is among the student's likeliest; else a row of zeros."""
    return np.asarray(likeliest(student, kept) == teacher.argmax(axis=1)[:, None], dtype=np.int64)


def all_alike_if_no_numbers(probabilities: Array) -> Array:
    """One row an input: a network that hostile records have broken has no opinion."""
    finite = np.isfinite(probabilities).all(axis=1, keepdims=True)
    return np.asarray(np.where(finite, probabilities, 1 / probabilities.shape[1]))
