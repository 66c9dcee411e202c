"""Teachers that protect labels only: what they tell, what it costs, and who may be asked for it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.entropies import SeededEntropy
from support.guards import DELTA, bench, ignore_progress, open_ledger, silo_tables
from support.moments import SHELF
from support.teaching import ROWS, clouds, label_teacher, private_teacher

from silosynth.client.config import SiloConfig
from silosynth.client.guard.entropy import SystemEntropy
from silosynth.client.guard.guard import Guard
from silosynth.client.guard.ledger import Ledger
from silosynth.client.mechanisms import MECHANISMS
from silosynth.client.mechanisms.label_training import label_training, order_without_labels, told_labels
from silosynth.common.accounting import calibrate, epsilon, rdp_epsilon
from silosynth.common.config import parse
from silosynth.common.datasets.records import Records
from silosynth.common.errors import BudgetExhausted, PolicyDenied
from silosynth.common.events import LabelResponse, PostProcessing, SampledGaussian, from_proto, merge
from silosynth.common.publication.accounting import LABEL_UNIT, UNIT, agree, privacy_of
from silosynth.common.queries import LabelTraining, TeacherAnswers, encode
from silosynth.common.releases import Receipt, open_release


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with closing(open_ledger(tmp_path)) as opened:
        yield opened


def training(noise: float, classes: int = 3, **changes: Any) -> LabelTraining:
    inner = label_teacher(noise_multiplier=noise).training()
    assert isinstance(inner, LabelTraining)
    return replace(inner, schema=replace(ROWS, classes=classes), **changes)


def silo(ledger: Ledger, budget: float = 10.0, public_inputs: bool = True) -> Guard:
    tables = silo_tables(budget, mechanisms_allowed=["teacher_answers"])
    tables["policy"]["public_inputs"] = public_inputs
    return Guard(parse(SiloConfig, tables, "test"), clouds(), ledger, MECHANISMS, SystemEntropy())


def receipt_of(guard: Guard, ledger: Ledger, query: TeacherAnswers) -> Receipt:
    shelf = ledger.path.with_name("artifacts")
    shelf.mkdir(exist_ok=True)
    (shelf / query.inputs).write_bytes(SHELF[query.inputs])
    return open_release(query, guard.answer(encode(query), ignore_progress).sealed)[1]


class TestTelling:
    @pytest.mark.parametrize("epsilon_of_one", [0.1, 1.0, 4.0, 20.0])
    @pytest.mark.parametrize("choices", [2, 3, 10])
    def test_no_answer_is_more_than_e_epsilon_times_as_likely(self, epsilon_of_one: float, choices: int) -> None:
        query = training(1 / epsilon_of_one)
        kept = query.kept_probability(choices)
        other = (1 - kept) / (choices - 1)
        assert 0.99 * math.exp(epsilon_of_one) < kept / other <= math.exp(epsilon_of_one)
        assert max(kept * choices, 1 / (other * choices)) <= math.exp(epsilon_of_one)  # against none of the choices

    @pytest.mark.parametrize("label", range(4))
    def test_labels_are_told_as_often_as_stated(self, label: int) -> None:
        """Where a prior is nearly sure of two classes, among these; what it finds improbable is told as any of them."""
        query, draws = training(1 / 1.5, classes=4), 40_000
        prior = np.tile([0.04, 0.5, 0.4, 0.06], (draws, 1))
        told = told_labels(query, np.full(draws, label), prior, SeededEntropy(label))
        kept = query.kept_probability(2)
        expected = {1: [0, kept, 1 - kept, 0], 2: [0, 1 - kept, kept, 0]}.get(label, [0, 0.5, 0.5, 0])
        found = np.bincount(told, minlength=4) / draws
        assert found == pytest.approx(expected, abs=5 * 0.5 / math.sqrt(draws))

    def test_a_prior_that_is_sure_is_told_whatever_the_label(self) -> None:
        prior = np.tile([0.0, 1.0, 0.0], (50, 1))
        assert (told_labels(training(1.0), np.arange(50) % 3, prior, SeededEntropy()) == 1).all()

    def test_without_noise_labels_are_told_as_they_are(self) -> None:
        labels, prior = np.arange(50) % 3, np.tile([0.0, 1.0, 0.0], (50, 1))
        assert np.array_equal(told_labels(training(0.0), labels, prior, SeededEntropy()), labels)

    def test_no_label_has_a_say_in_the_order(self) -> None:
        records = clouds(40)
        others = Records(records.features, (records.labels + 1) % 3, ROWS)
        assert np.array_equal(order_without_labels(records, 5), order_without_labels(others, 5))
        backwards = order_without_labels(records.take(np.arange(40)[::-1].copy()), 5)
        assert np.array_equal(39 - backwards, order_without_labels(records, 5))


class TestTraining:
    @pytest.mark.parametrize(("noise", "low", "high"), [(1 / 8, 0.9, 1.0), (1000.0, 0.0, 0.8)])
    def test_much_is_learned_of_labels_told_often_and_nothing_of_others(
        self, noise: float, low: float, high: float
    ) -> None:
        query, unseen = training(noise, steps=150), clouds(300, seed=9)
        weights = label_training(query, clouds(300), bench(SeededEntropy())) * query.grid()
        matrix, bias = weights[:12].reshape(3, 4), weights[12:]
        right = ((unseen.flat() @ matrix.T + bias).argmax(axis=1) == unseen.labels).mean()
        assert low <= right <= high

    @pytest.mark.parametrize("count", [0, 1, 2])
    def test_few_records_are_no_trouble(self, count: int) -> None:
        query = training(1.0)
        assert label_training(query, clouds(count), bench(SeededEntropy())).shape == (query.layout().size,)

    def test_progress_does_not_tell_how_many_records_there_are(self) -> None:
        told = dict[int, list[float]]()
        for count in (0, 60):
            told[count] = []
            working = replace(bench(SeededEntropy()), report=told[count].append)
            label_training(training(1.0), clouds(count), working)
        assert told[0] == told[60]


class TestCharging:
    def test_training_is_charged_once_and_answers_are_free(self, ledger: Ledger) -> None:
        guard, queries = silo(ledger), [label_teacher(seed=seed) for seed in range(3)]
        receipts = [receipt_of(guard, ledger, query) for query in queries]
        assert ledger.spent("default").events == (LabelResponse(1.0),)
        assert isinstance(receipts[0].event, PostProcessing)
        assert guard.budget().epsilon_spent == 1.0
        privacy = privacy_of(receipts, DELTA)
        assert (privacy.unit, privacy.epsilon_worst) == (LABEL_UNIT, 1.0)
        assert not agree(privacy.model_copy(update={"unit": UNIT}), privacy)

    def test_a_silo_that_has_not_declared_its_inputs_public_refuses(self, ledger: Ledger) -> None:
        with pytest.raises(PolicyDenied, match="public_inputs = true"):
            receipt_of(silo(ledger, public_inputs=False), ledger, label_teacher())
        assert not ledger.spent("default").events

    def test_the_budget_holds(self, ledger: Ledger) -> None:
        with pytest.raises(BudgetExhausted, match=r"noise multiplier of 2\."):
            receipt_of(silo(ledger, budget=0.5), ledger, label_teacher())
        assert not ledger.spent("default").events

    @pytest.mark.parametrize("labels_first", [False, True])
    def test_labels_and_records_do_not_add_up(self, labels_first: bool, ledger: Ledger) -> None:
        queries = [private_teacher(), label_teacher()]
        first, second = reversed(queries) if labels_first else queries
        guard = silo(ledger, budget=100.0)
        receipt_of(guard, ledger, first)
        with pytest.raises(PolicyDenied, match="another dataset"):
            receipt_of(guard, ledger, second)
        assert len(ledger.spent("default").events) == 1


class TestEvents:
    def test_pure_guarantees_add_up_at_any_delta(self) -> None:
        events = [LabelResponse(0.5), LabelResponse(4.0, 2)]
        assert epsilon(iter(events), 1e-9) == rdp_epsilon(events, 1e-2) == 2.5
        assert math.isinf(epsilon([LabelResponse(0.0)], DELTA))

    def test_with_records_there_is_no_figure_for_both(self) -> None:
        assert math.isinf(epsilon([LabelResponse(1.0), SampledGaussian(10.0)], DELTA))

    def test_noise_is_found_for_a_budget(self) -> None:
        assert 1 / calibrate(lambda z: [LabelResponse(z)], 3.0, DELTA) == pytest.approx(3.0, rel=2e-3)

    def test_they_come_back_as_they_went(self) -> None:
        response = LabelResponse(0.7, 3)
        for charge in (response, PostProcessing(response, (b"1" * 32,))):
            assert from_proto(charge.to_proto()) == charge

    def test_equal_ones_are_counted_together(self) -> None:
        mixed = [LabelResponse(1.0), SampledGaussian(1.0), LabelResponse(1.0, 4)]
        assert merge(mixed) == (SampledGaussian(1.0), LabelResponse(1.0, 5))
