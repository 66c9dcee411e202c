"""No teacher, however hostile, moves answers further than is stated; DP-SGD's sums move by no more than the clip.

Responses are enumerated: every answer is possible, none is told more than e^epsilon times as often for one teacher as
for another, and no test between two teachers is better than one between a Gaussian mechanism's outputs.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import ndtr, ndtri
from support.entropies import SeededEntropy
from support.teaching import PROBABILITIES, ROWS, answers_query, clouds

from silosynth.client.guard.noise import randomized_response
from silosynth.client.mechanisms.label_training import told_labels
from silosynth.client.mechanisms.record_gradients import clipped_sum, per_record_gradients
from silosynth.client.mechanisms.teacher_answers import answer
from silosynth.client.mechanisms.teacher_training import parts_of
from silosynth.common.accounting import epsilon
from silosynth.common.events import SampledGaussian
from silosynth.common.networks.weights import flat_weights
from silosynth.common.queries import LabelTraining, TeacherAnswers
from silosynth.common.queries.base import fine_grid
from silosynth.common.schema import Schema
from silosynth.common.teaching.views import draw_classifier

Floats = npt.NDArray[np.float64]
many = settings(max_examples=300, deadline=None)


def probabilities(rows: int, classes: int) -> st.SearchStrategy[Floats]:
    """Of anything: sure of one class, torn between two, shares of any size, no numbers at all."""
    sure = st.lists(st.integers(0, classes - 1), min_size=rows, max_size=rows).map(lambda names: np.eye(classes)[names])
    torn = st.permutations(range(classes)).map(
        lambda order: np.tile((np.eye(classes)[order[0]] + np.eye(classes)[order[1]]) / 2, (rows, 1))
    )
    shares = arrays(np.float64, (rows, classes), elements=st.sampled_from([0.0, 1e-300, 1e-12, 1e-3, 0.3, 1.0]))
    honest = shares.map(lambda parts: (parts + 1e-300) / (parts + 1e-300).sum(axis=1, keepdims=True))
    broken = st.sampled_from([math.nan, math.inf, -1e300, 1e300]).map(lambda value: np.full((rows, classes), value))
    return sure | torn | honest | broken


@st.composite
def two_teachers(draw: st.DrawFn) -> tuple[TeacherAnswers, Floats, Floats, Floats]:
    classes, number = draw(st.integers(2, 5)), draw(st.integers(1, 4))
    weight, kept = draw(st.sampled_from([0.0, 0.2, 1.0, 8.0, 1000.0])), draw(st.integers(2, classes))
    told = draw(st.sampled_from([PROBABILITIES | {"kept": classes}, {"kept": kept, "other_weight": weight}]))
    query = answers_query(Schema((2,), classes), number=number, **told)
    student = draw(arrays(np.float64, (number, classes), elements=st.sampled_from([1e-30, 0.01, 0.5, 1.0])))
    one, other = (draw(probabilities(number, classes)) for _ in range(2))
    return query, one, other, student / student.sum(axis=1, keepdims=True)


@many
@given(two_teachers())
def test_no_teacher_is_further_from_another_than_stated(drawn: tuple[TeacherAnswers, Floats, Floats, Floats]) -> None:
    query, one, other, student = drawn
    first, second = answer(query, one, student), answer(query, other, student)
    unit = Fraction(1 / query.grid())
    for row in (*first, *second):
        assert sum(int(step) ** 2 for step in row) <= unit**2
    for row in first - second:
        assert sum(int(step) ** 2 for step in row) <= (2 if query.answers == "probabilities" else 4) * unit**2
    batch = (Fraction(query.plan().sensitivity) * unit) ** 2
    assert sum(int(step) ** 2 for step in (first - second).reshape(-1)) <= batch


def test_the_bound_is_nearly_reached() -> None:
    """Two teachers with the same first class and opposite second ones, where the student finds all as likely."""
    query = answers_query(Schema((2,), 3), number=3, kept=3, other_weight=1000.0)
    student = np.full((3, 3), 1 / 3)
    one, other = (answer(query, np.array([second] * 3), student) for second in ([0.6, 0.4, 0.0], [0.6, 0.0, 0.4]))
    moved = np.linalg.norm(one - other) * query.grid()
    assert 0.99 * query.plan().sensitivity < moved <= query.plan().sensitivity


def test_two_sure_teachers_reach_the_bound_of_probabilities() -> None:
    query = answers_query(Schema((2,), 3), number=3, kept=3, **PROBABILITIES)
    one, other = (answer(query, np.eye(3)[[first] * 3], np.full((3, 3), 1 / 3)) for first in (0, 1))
    assert np.linalg.norm(one - other) * query.grid() == pytest.approx(query.plan().sensitivity, rel=1e-3)


def test_the_papers_settings_cost_28_8_not_1() -> None:
    """sigma 100, b 256, T 200: noise of 100 beta on answers that move by 2 beta each."""
    query = answers_query(number=256, noise_multiplier=100 / (2 * math.sqrt(256)))
    assert query.plan().noise_std == pytest.approx(100)
    assert epsilon([query.event()] * 200, 1e-5) == pytest.approx(28.8, abs=0.05)


@many
@given(st.integers(0, 10**6), st.integers(1, 20))
def test_a_record_is_in_a_part_of_its_own_choice(seed: int, parts: int) -> None:
    records = clouds(12, seed=seed)
    assigned = parts_of(records, 7, parts)
    for left_out in range(len(records)):
        others = np.delete(np.arange(len(records)), left_out)
        assert np.array_equal(parts_of(records.take(others), 7, parts), assigned[others])


@many
@given(
    arrays(np.float32, (3, 4), elements=st.floats(-(2.0**100), 2.0**100, width=32) | st.sampled_from([0.0, 1.0, 3e38])),
    st.sampled_from(["linear", "mlp"]),
    st.floats(1e-3, 1e3),
    st.integers(0, 9),
)
def test_one_record_moves_a_sum_of_gradients_by_the_clip_at_most(
    rows: npt.NDArray[np.float32], network: str, clip: float, seed: int
) -> None:
    classifier = draw_classifier(network, ROWS, 0, seed)
    gradients, seen = per_record_gradients(classifier), torch.from_numpy(rows)
    weights, labels = flat_weights(classifier) + seed / 10, torch.tensor([0, 1, 2])
    without, with_it = (clipped_sum(gradients, weights, seen[:n], labels[:n], clip) for n in (2, 3))
    allowed = (Fraction(clip) / Fraction(fine_grid(clip, len(weights)))) ** 2
    assert sum(int(step) ** 2 for step in with_it - without) <= allowed


@many
@given(st.data(), st.integers(2, 5), st.integers(0, 9), st.sampled_from([0.05, 1.0, 20.0]))
def test_a_label_is_told_by_itself_and_never_too_plainly(
    data: st.DataObject, classes: int, seed: int, noise: float
) -> None:
    """Of two datasets that differ by one label: by the same coins all others are told the same, and what is told of
    that one is, whatever the prior, no more than e^epsilon times as likely."""
    query = LabelTraining(
        schema=Schema((2,), classes),
        noise_multiplier=noise,
        network="linear",
        backbone="",
        seed=seed,
        steps=1,
        features=0,
    )
    prior = data.draw(probabilities(4, classes).filter(lambda shares: bool(np.isfinite(shares).all())))
    labels = np.array(data.draw(st.lists(st.integers(0, classes - 1), min_size=4, max_size=4)))
    changed, other = labels.copy(), data.draw(st.integers(0, classes - 1))
    changed[2] = other
    one, two = (told_labels(query, these, prior, SeededEntropy(seed)) for these in (labels, changed))
    assert np.array_equal(np.delete(one, 2), np.delete(two, 2))
    many_times = np.tile(prior[2], (3000, 1))
    table = [
        np.bincount(told_labels(query, np.full(3000, label), many_times, SeededEntropy(seed)), minlength=classes) / 3000
        for label in (labels[2], other)
    ]
    for one_way, other_way in (table, table[::-1]):
        assert (one_way <= math.exp(1 / noise) * other_way + 5 * math.sqrt((1 + math.exp(1 / noise)) / 3000)).all()


def response_table(query: TeacherAnswers) -> Floats:
    """The probability of each answer (column) for each choice that a teacher names, the last row for none."""
    response = query.response()
    assert response is not None
    table = np.full((response.choices + 1, response.choices), (1 - response.kept) / (response.choices - 1))
    np.fill_diagonal(table, response.kept)
    table[-1] = 1 / response.choices
    return table


RESPONSES = [
    answers_query(Schema((2,), classes), answers="classes", other_weight=0.0, kept=kept, noise_multiplier=z, number=b)
    for classes, kept, z, b in ((2, 2, 0.3, 1), (5, 3, 1.0, 1), (5, 5, 0.2, 4), (10, 3, 2.0, 256))
]


def largest_ratio(table: Floats) -> float:
    """Of the probabilities of one answer under any two teachers; infinite where one of them is never given."""
    pairs = product(table, table)
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(max(np.nanmax(one / other) for one, other in pairs))


@pytest.mark.parametrize("query", RESPONSES, ids=lambda query: f"{query.kept} of {query.schema.classes}")
class TestResponses:
    def test_no_answer_is_more_than_e_epsilon_times_as_likely(self, query: TeacherAnswers) -> None:
        assert largest_ratio(response_table(query)) == pytest.approx(math.exp(query.label_epsilon()))

    def test_no_test_is_better_than_one_against_the_gaussian_mechanism(self, query: TeacherAnswers) -> None:
        table, mu = response_table(query), 1 / (query.noise_multiplier * math.sqrt(query.number))
        for one, other in product(table, table):
            for chosen in product((False, True), repeat=query.kept):
                rejected = np.array(chosen)
                false_alarm, miss = one[rejected].sum(), 1 - other[rejected].sum()
                assert miss >= ndtr(ndtri(1 - min(false_alarm, 1.0)) - mu) - 1e-9

    def test_responses_are_drawn_as_often_as_stated(self, query: TeacherAnswers) -> None:
        response, draws = query.response(), 40_000
        assert response is not None
        for row, expected in enumerate(response_table(query)):
            named = np.zeros((draws, response.choices), dtype=np.int64)
            if row < response.choices:
                named[:, row] = 1
            told = randomized_response(named, response, SeededEntropy(row))
            assert (told.sum(axis=1) == 1).all()
            assert told.mean(axis=0) == pytest.approx(expected, abs=5 * 0.5 / math.sqrt(draws))

    def test_the_papers_equation_has_no_bound(self, query: TeacherAnswers) -> None:
        """Eq. (5): response among all classes where the student's k hold the teacher's, else any of the k."""
        classes, kept, kept_probability = query.schema.classes, query.kept, 0.9
        table = np.full((classes, classes), (1 - kept_probability) / (classes - 1))
        np.fill_diagonal(table, kept_probability)
        table[kept:] = np.where(np.arange(classes) < kept, 1 / kept, 0)
        assert math.isinf(largest_ratio(table)) == (kept < classes)


def test_many_responses_cost_what_their_batch_states() -> None:
    """Composed exactly, by the distribution of the privacy loss, they cost less than the Gaussian that bounds them."""
    query = replace(RESPONSES[-1], noise_multiplier=0.5)
    table, delta = response_table(query), 1e-5
    losses = np.log(table[0] / table[1])
    exact = _epsilon_of_sums(losses, table[0], query.number, delta)
    stated = epsilon([SampledGaussian(0.5)], delta)
    assert exact <= stated <= 1.3 * exact
    assert query.label_epsilon() < exact


def _epsilon_of_sums(losses: Floats, chances: Floats, count: int, delta: float) -> float:
    """Losses are +e, 0 and -e: sums are multiples of e, whose distribution is a plain convolution."""
    one = np.array([chances[losses < -1e-9].sum(), chances[abs(losses) < 1e-9].sum(), chances[losses > 1e-9].sum()])
    distribution = np.ones(1)
    for _ in range(count):
        distribution = np.convolve(distribution, one)
    sums = np.arange(-count, count + 1) * losses.max()

    def delta_at(candidate: float) -> float:
        return float((distribution * np.maximum(0, 1 - np.exp(candidate - sums))).sum())

    low, high = 0.0, float(sums[-1])
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (low, middle) if delta_at(middle) <= delta else (middle, high)
    return high
