"""Teachers in a guard: trained once, charged once where training is private, kept, and asked about public inputs."""

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
from support.guards import DELTA, CountedMechanism, bench, ignore_progress, open_ledger, silo_tables
from support.moments import SHELF, shelve
from support.teaching import ROWS, answers_query, clouds, private_teacher, sub_teachers

from silosynth.client.config import SiloConfig
from silosynth.client.guard.entropy import SystemEntropy
from silosynth.client.guard.guard import Guard
from silosynth.client.guard.ledger import Ledger
from silosynth.client.mechanisms import MECHANISMS, teacher_training, teachers
from silosynth.client.mechanisms.private_training import private_training
from silosynth.client.mechanisms.teacher_answers import teacher_answers
from silosynth.common.accounting import epsilon
from silosynth.common.config import parse
from silosynth.common.datasets.records import Records
from silosynth.common.errors import BudgetExhausted, QueryError
from silosynth.common.events import PostProcessing
from silosynth.common.networks.weights import flat_weights
from silosynth.common.publication.accounting import privacy_of
from silosynth.common.queries import TeacherAnswers, charges_of, encode
from silosynth.common.releases import open_release
from silosynth.common.schema import Schema
from silosynth.common.teaching.inputs import encode_inputs
from silosynth.common.teaching.views import draw_classifier

IMAGES = Schema((8, 8, 1), 3)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with closing(open_ledger(tmp_path)) as opened:
        yield opened


@pytest.fixture(autouse=True)
def nothing_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(teachers, "_known", type(teachers._known)())


def silo(ledger: Ledger, budget: float = 10.0, **mechanisms: Any) -> Guard:
    config = parse(SiloConfig, silo_tables(budget, mechanisms_allowed=["teacher_answers"]), "test")
    return Guard(config, clouds(), ledger, {**MECHANISMS, **mechanisms}, SystemEntropy())


def answered(guard: Guard, ledger: Ledger, query: TeacherAnswers) -> bytes:
    """As if a courier had brought the inputs."""
    shelf = ledger.path.with_name("artifacts")
    shelf.mkdir(exist_ok=True)
    (shelf / query.inputs).write_bytes(SHELF[query.inputs])
    return guard.answer(encode(query), ignore_progress).sealed


def asked(query: TeacherAnswers, records: Records | None = None, **changes: Any) -> np.ndarray:
    """Outside a guard; what the silo asks itself is answered exactly."""

    def inside(inner: Any, artifacts: object) -> np.ndarray:
        return private_training(inner, clouds(), bench(SeededEntropy(), artifacts=SHELF))

    working = replace(bench(SeededEntropy(), artifacts=SHELF), ask=inside, **changes)
    return teacher_answers(query, clouds() if records is None else records, working)


class TestPrivateTeachers:
    def test_training_is_charged_once_and_answers_are_free(self, ledger: Ledger) -> None:
        counted = CountedMechanism(private_training)
        guard, queries = silo(ledger, private_training=counted), [private_teacher(seed=seed) for seed in range(3)]
        receipts = [open_release(query, answered(guard, ledger, query))[1] for query in queries]
        assert ledger.spent("default").releases == 4
        assert ledger.spent("default").events == (queries[0].event(),)
        assert list(counted.computed.values()) == [1]
        assert len({receipt.event for receipt in receipts}) == 1
        assert isinstance(receipts[0].event, PostProcessing)

    def test_a_release_made_of_all_answers_costs_one_training(self, ledger: Ledger) -> None:
        guard, queries = silo(ledger), [private_teacher(seed=seed) for seed in range(3)]
        receipts = [open_release(query, answered(guard, ledger, query))[1] for query in queries]
        once = epsilon([queries[0].event()], DELTA)
        assert privacy_of(receipts, DELTA).epsilon_worst == pytest.approx(once)
        assert charges_of(queries) == [queries[0].event()]

    def test_a_guard_that_starts_again_has_its_teacher_still(self, tmp_path: Path) -> None:
        counted = CountedMechanism(private_training)
        for seed in range(2):
            with closing(open_ledger(tmp_path)) as ledger:
                answered(silo(ledger, private_training=counted), ledger, private_teacher(seed=seed))
        assert list(counted.computed.values()) == [1]

    def test_what_the_budget_does_not_allow_is_not_begun(self, ledger: Ledger) -> None:
        counted = CountedMechanism(private_training)
        guard = silo(ledger, budget=0.1, private_training=counted)
        with pytest.raises(BudgetExhausted):
            answered(guard, ledger, private_teacher())
        assert not counted.computed
        assert not ledger.spent("default").events

    def test_the_weights_themselves_are_not_to_be_had(self, ledger: Ledger) -> None:
        guard, query = silo(ledger), private_teacher()
        answered(guard, ledger, query)
        with pytest.raises(QueryError):
            guard.answer(query.inner_identities()[0], ignore_progress)

    def test_answers_depend_on_the_weights_alone(self) -> None:
        assert np.array_equal(asked(private_teacher()), asked(private_teacher(), clouds(0)))

    def test_little_noise_teaches_much_and_much_noise_nothing(self) -> None:
        right = {z: _right(private_teacher(noise_multiplier=z, steps=40, number=200)) for z in (0.01, 1000.0)}
        assert right[0.01] > 0.95
        assert right[1000.0] < 0.7

    @pytest.mark.parametrize("network", ["linear", "mlp", "convnet"])
    def test_every_network_can_be_trained_so(self, network: str) -> None:
        training = private_teacher(schema=IMAGES, network=network, steps=2).training()
        weights = private_training(training, clouds(9, IMAGES), bench(SeededEntropy()))
        assert weights.shape == (training.layout().size,)
        assert training.layout().size == len(flat_weights(draw_classifier(network, IMAGES, 0, 0)))


def _right(query: TeacherAnswers) -> float:
    """How often an answer about records of known class moves a student without opinion to that class."""
    records, student = clouds(query.number, seed=9), np.full((query.number, ROWS.classes), 1 / 3, dtype=np.float32)
    inputs = shelve(encode_inputs(records.features, student))
    answers = asked(replace(query, inputs=inputs)).reshape(query.number, -1)
    return float((answers.argmin(axis=1) == records.labels).mean())


class TestTeachersWithoutNoise:
    @pytest.mark.parametrize("query", [answers_query(), sub_teachers(3)], ids=["plain", "sub-teachers"])
    def test_they_learn(self, query: TeacherAnswers) -> None:
        assert _right(replace(query, number=200, steps=200)) > 0.95

    @pytest.mark.parametrize("query", [answers_query(), sub_teachers(3)], ids=["plain", "sub-teachers"])
    def test_they_are_kept_where_only_the_guard_can_read_them(
        self, query: TeacherAnswers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = asked(query, keep=tmp_path / "teachers")
        (file,) = (tmp_path / "teachers").iterdir()
        assert file.stat().st_mode & 0o777 == 0o600
        teachers._known.clear()
        with monkeypatch.context() as patched:
            patched.setattr(teachers, "train_teachers", None)
            assert np.array_equal(asked(query, keep=tmp_path / "teachers"), first)
        teachers._known.clear()
        file.write_bytes(b"damaged")
        assert np.array_equal(asked(query, keep=tmp_path / "teachers"), first)
        assert len(list((tmp_path / "teachers").iterdir())) == 1

    def test_other_records_have_other_teachers(self, tmp_path: Path) -> None:
        for seed in range(10):
            asked(answers_query(steps=1), clouds(10, seed=seed), keep=tmp_path)
        assert len(list(tmp_path.iterdir())) == 8

    def test_progress_does_not_tell_how_many_records_there_are(self) -> None:
        told = dict[int, list[float]]()
        for count in (0, 5, 60):
            told[count] = []
            asked(sub_teachers(4), clouds(count), report=told[count].append)
        assert told[0] == told[5] == told[60]

    def test_a_silo_without_records_has_no_opinion(self) -> None:
        assert _right(answers_query(number=50)) > 0.5
        nobody = asked(answers_query(), clouds(0)).reshape(-1, ROWS.classes)
        assert (np.abs(nobody).sum(axis=1) <= math.ceil(2 / answers_query().grid())).all()

    def test_training_stops_when_it_no_longer_helps(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Labels at random: nothing can be learned, so what looked best at first is kept."""
        looks = list[float]()
        judge = teacher_training._loss
        monkeypatch.setattr(teacher_training, "_loss", lambda *args: looks.append(judge(*args)) or looks[-1])
        records = clouds(200)
        shuffled = Records(records.features, np.random.default_rng(0).permutation(records.labels), ROWS)
        asked(answers_query(network="mlp", steps=20_000), shuffled)
        assert len(looks) < 60


class TestAnswers:
    def test_classes_are_told_by_response(self, ledger: Ledger) -> None:
        query = answers_query(answers="classes", other_weight=0.0, number=40)
        values, receipt = open_release(query, answered(silo(ledger), ledger, query))
        assert (values.reshape(40, 2).sum(axis=1) == 1).all()
        assert receipt.event == query.event()
        assert 0 < query.label_epsilon() < epsilon([query.event()], DELTA)

    def test_without_noise_a_class_is_told_as_it_is(self) -> None:
        query = answers_query(answers="classes", other_weight=0.0, noise_multiplier=0.0, kept=3)
        assert query.response() == replace(query.response(), kept=1.0)
        assert math.isinf(query.label_epsilon())

    def test_inputs_are_forgotten_once_they_are_answered(self, ledger: Ledger) -> None:
        query = answers_query()
        answered(silo(ledger), ledger, query)
        assert not list(ledger.path.with_name("artifacts").iterdir())

    @pytest.mark.parametrize(
        "content",
        [
            b"garbage",
            encode_inputs(np.zeros((4, 4), np.float32), np.full((5, 3), 1 / 3, np.float32)),
            encode_inputs(np.zeros((5, 4), np.float32), np.full((5, 2), 1 / 2, np.float32)),
            encode_inputs(np.zeros((5, 4), np.float32), np.zeros((5, 3), np.float32)),
            encode_inputs(np.zeros((5, 4), np.float32), np.full((5, 3), np.nan, np.float32)),
            encode_inputs(np.full((5, 4), np.inf, np.float32), np.full((5, 3), 1 / 3, np.float32)),
            encode_inputs(np.zeros((5, 4), np.float32), np.array([[2.0, -1.0, 0.0]] * 5, np.float32)),
        ],
        ids=["garbage", "few", "classes", "zeros", "nan", "infinite", "negative"],
    )
    def test_inputs_that_make_no_sense_are_refused_uncharged(self, content: bytes, ledger: Ledger) -> None:
        with pytest.raises(QueryError):
            answered(silo(ledger), ledger, answers_query(inputs=shelve(content)))
        assert not ledger.spent("default").events

    def test_what_is_protected_is_stated(self) -> None:
        assert "all records of a silo" in answers_query().remark()
        assert "one response alone" in answers_query(answers="classes", other_weight=0.0).remark()
        assert private_teacher().remark() == sub_teachers().remark() == ""
