"""Evaluation: fresh models on the synthetic set, judged on public records."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from silosynth.common.datasets import Records
from silosynth.common.devices import pick_device
from silosynth.common.errors import ConfigError, DataError
from silosynth.common.schema import Schema
from silosynth.server.config import EvaluationSettings
from silosynth.server.evaluation import Evaluation, ceiling, evaluate
from silosynth.server.evaluation.trials import Bench, ensemble_accuracy
from silosynth.server.recipes.base import Product

IMAGES = Schema((8, 8, 1), 3)
TABLE = Schema((4,), 3)
QUICK = EvaluationSettings(steps=40, seeds=2, device="cpu")


def bars(count: int, seed: int) -> Records:
    """Class c has a bright bar at column 2c, in grey noise."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 3, count)
    pixels = generator.integers(0, 100, (count, 8, 8, 1), dtype=np.uint8)
    pixels[np.arange(count), :, 2 * labels, 0] = 255
    return Records(pixels, labels, IMAGES)


def corners(count: int, seed: int) -> Records:
    labels = np.random.default_rng(seed).integers(0, 3, count)
    return Records(np.eye(3, 4, dtype=np.float32)[labels], labels, TABLE)


def as_product(records: Records) -> Product:
    features = np.concatenate([features for features, _ in records.batches()])
    return Product(features.reshape(-1, *records.schema.shape), records.labels)


@pytest.fixture(scope="module")
def evaluation() -> Evaluation:
    product = as_product(bars(60, seed=0))
    settings = QUICK.model_copy(update={"ceiling": 0.99})
    always_one = Product(product.features, product.labels, classifier=lambda rows: np.ones(len(rows), dtype=np.int64))
    return evaluate(always_one, bars(90, seed=1), settings)


def test_a_good_set_scores_high(evaluation: Evaluation) -> None:
    assert evaluation.accuracy > 0.9
    assert evaluation.model == "convnet"
    assert (evaluation.synthetic_records, evaluation.test_records) == (60, 90)
    assert evaluation.cpu_seconds > 0


def test_the_headline_is_the_mean_over_seeds(evaluation: Evaluation) -> None:
    assert evaluation.seeds == (0, 1)
    assert evaluation.accuracy == pytest.approx(np.mean(evaluation.accuracy_by_seed))
    assert evaluation.accuracy_spread == pytest.approx(np.std(evaluation.accuracy_by_seed))


def test_the_worst_class_is_named(evaluation: Evaluation) -> None:
    assert evaluation.worst_class_accuracy == min(share for share in evaluation.accuracy_by_class if share is not None)
    assert evaluation.accuracy_by_class[evaluation.worst_class] == evaluation.worst_class_accuracy


def test_floor_ceiling_and_own_classifier_stand_beside_it(evaluation: Evaluation) -> None:
    shares = np.bincount(bars(90, seed=1).labels) / 90
    assert evaluation.floor == pytest.approx(shares.max())
    assert evaluation.own_classifier_accuracy == pytest.approx(shares[1])
    assert evaluation.ceiling == 0.99


def test_json_and_back(evaluation: Evaluation) -> None:
    document = json.loads(evaluation.model_dump_json())
    assert Evaluation.model_validate(document) == evaluation
    assert set(document) == set(Evaluation.model_json_schema()["properties"])


def test_the_same_seeds_give_the_same_scores() -> None:
    product, test = as_product(bars(30, seed=0)), bars(60, seed=1)
    torch.manual_seed(1)
    first = evaluate(product, test, QUICK)
    torch.manual_seed(2)
    before = torch.random.get_rng_state()
    second = evaluate(product, test, QUICK)
    assert first.accuracy_by_seed == second.accuracy_by_seed
    assert torch.equal(torch.random.get_rng_state(), before)


def test_what_is_judged_is_what_is_published() -> None:
    """Differences below 8 bits are lost in the release, so they must not help here."""
    test = bars(90, seed=1)
    hidden = np.full((60, *IMAGES.shape), 0.5, dtype=np.float32) + bars(60, seed=0).features.astype(np.float32) * 1e-6
    score = evaluate(Product(hidden, bars(60, seed=0).labels), test, QUICK)
    published = Product(np.full_like(hidden, 0.5), bars(60, seed=0).labels)
    assert score.accuracy_by_seed == evaluate(published, test, QUICK).accuracy_by_seed


def test_a_class_the_test_set_lacks_has_no_score() -> None:
    test = bars(60, seed=1)
    test = test.take(np.flatnonzero(test.labels != 2))
    assert evaluate(as_product(bars(30, seed=0)), test, QUICK).accuracy_by_class[2] is None


def test_soft_labels_are_learned_from() -> None:
    product, test = as_product(bars(60, seed=0)), bars(90, seed=1)
    shifted = np.eye(3, dtype=np.float32)[(product.labels + 1) % 3]
    misled = evaluate(Product(product.features, product.labels, soft_labels=shifted), test, QUICK)
    assert misled.accuracy < 0.1


def test_tables_get_the_linear_model() -> None:
    score = evaluate(as_product(corners(60, seed=0)), corners(50, seed=1), QUICK)
    assert (score.model, score.accuracy) == ("linear", 1.0)


def test_the_ceiling_trains_on_the_real_records() -> None:
    assert ceiling(bars(60, seed=0), bars(90, seed=1), QUICK) > 0.9


def test_no_records_are_an_error() -> None:
    nothing = bars(3, seed=0).take(np.array([], dtype=np.int64))
    with pytest.raises(DataError, match="no test records"):
        evaluate(as_product(bars(3, seed=0)), nothing, QUICK)
    with pytest.raises(DataError, match="no synthetic records"):
        evaluate(Product(nothing.features.astype(np.float32), nothing.labels), bars(3, seed=0), QUICK)


def test_the_convnet_reads_the_records_layout() -> None:
    """Flat records are height x width x channels."""
    schema = Schema((8, 8, 2), 2)
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 60, (80, 8, 8, 2), dtype=np.uint8)
    labels = generator.integers(0, 2, 80)
    pixels[np.arange(80), 2:6, 2:6, labels] = 255  # the class is the channel of the square
    records = Records(pixels, labels, schema)
    assert ceiling(records, records, QUICK) > 0.95


def test_devices() -> None:
    assert pick_device("cpu").type == "cpu"
    assert pick_device("auto").type in ("cpu", "cuda")


@pytest.mark.parametrize("steps", [1, 2])
def test_a_single_record_and_a_single_step_are_enough(steps: int) -> None:
    one = as_product(bars(1, seed=0))
    assert evaluate(one, bars(9, seed=1), EvaluationSettings(steps=steps, seeds=1, device="cpu")).steps == steps


def test_documents_of_the_first_version_stay_readable(evaluation: Evaluation) -> None:
    document = json.loads(evaluation.model_dump_json())
    optional = [name for name, field in Evaluation.model_fields.items() if not field.is_required()]
    for name in set(optional) - {"version"}:
        del document[name]
    assert Evaluation.model_validate(document).accuracy == evaluation.accuracy


def test_architectures_make_a_table_and_vote_together() -> None:
    settings = QUICK.model_copy(update={"architectures": ("mlp-16", "linear", "convnet")})
    score = evaluate(as_product(bars(60, seed=0)), bars(90, seed=1), settings)
    assert list(score.by_architecture) == ["convnet", "mlp-16", "linear"]
    assert score.by_architecture["convnet"].accuracy == score.accuracy
    assert all(row.accuracy > 0.6 and row.accuracy_ensemble > 0.6 for row in score.by_architecture.values())
    assert score.accuracy_ensemble_of_architectures is not None
    assert score.accuracy_ensemble_of_architectures > 0.8


def test_without_architectures_there_is_no_table(evaluation: Evaluation) -> None:
    assert evaluation.by_architecture == {}
    assert evaluation.accuracy_ensemble_of_architectures is None
    assert evaluation.accuracy_ensemble is not None


def test_an_ensemble_averages_probabilities() -> None:
    """Two of three models lean weakly to class 1 for the first record; the sure one outvotes them."""
    votes = np.array([[[0.9, 0.1], [0.2, 0.8]], [[0.4, 0.6], [0.2, 0.8]], [[0.4, 0.6], [0.9, 0.1]]], dtype=np.float32)
    assert ensemble_accuracy(votes, np.array([0, 1])) == 1.0
    assert ensemble_accuracy(votes, np.array([1, 1])) == 0.5
    assert ensemble_accuracy(votes[1:2], np.array([0, 1])) == 0.5


def test_a_misfit_is_found_before_anything_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bench, "trial", lambda *_: pytest.fail("trained before all models were checked"))
    settings = QUICK.model_copy(update={"architectures": ("lenet",)})
    with pytest.raises(ConfigError, match="lenet"):
        evaluate(as_product(bars(3, seed=0)), bars(3, seed=1), settings)


def test_records_out_of_files_may_be_read_only() -> None:
    records = bars(9, seed=0)
    records.features.flags.writeable = records.labels.flags.writeable = False
    assert 0 <= ceiling(records, records, EvaluationSettings(steps=1, device="cpu")) <= 1
