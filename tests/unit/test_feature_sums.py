"""Feature sums: what a silo computes for NDPDC and Dosser, and that both sides see the same features."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from support.entropies import ScriptedEntropy, SeededEntropy
from support.guards import SCHEMA, bench, ignore_progress, open_ledger, toy_guard

from silosynth.client.guard.entropy import SystemEntropy
from silosynth.client.mechanisms.feature_sums import feature_sums
from silosynth.common.accounting import epsilon, rdp_epsilon
from silosynth.common.augmentation import OPS
from silosynth.common.auxiliary import as_inputs, decode_auxiliary, encode_records, procedural_auxiliary
from silosynth.common.datasets.records import Records, to_unit_range
from silosynth.common.errors import QueryError
from silosynth.common.projection import principal_components
from silosynth.common.queries import FeatureSums, encode
from silosynth.common.queries.feature_sums import AUGMENTATIONS
from silosynth.common.schema import Schema
from silosynth.common.signals import Signal, Signals
from silosynth.deploy.inprocess import InProcess

IMAGES, TABLE = Schema((8, 8, 1), 4), Schema((5,), 3)
CPU = torch.device("cpu")
DIGEST = "ab" * 32

QUERY = FeatureSums(
    schema=IMAGES,
    noise_multiplier=1.0,
    first=0,
    signals=3,
    sampling_probability=1.0,
    network="convnet",
    width=4,
    seed=9,
    augmentation="color,crop,rotate",
    projected=0,
    auxiliary="",
    clip=1.0,
    count_weight=0.25,
)
PROJECTED = replace(QUERY, projected=6)
ROWS = replace(QUERY, schema=TABLE, network="linear", width=7, augmentation="")
QUERIES = [QUERY, PROJECTED, ROWS]


def some_records(count: int, schema: Schema = IMAGES) -> Records:
    """Of all classes but the last."""
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 256, (count, *schema.shape), dtype=np.uint8)
    features = pixels if schema.is_image else to_unit_range(pixels)
    return Records(features, generator.integers(0, schema.classes - 1, count), schema)


def signals_of(query: FeatureSums, **artifacts: bytes) -> Signals:
    return Signals(query, artifacts.__getitem__, CPU)


def features_of(query: FeatureSums, index: int, records: Records) -> np.ndarray:
    flat = to_unit_range(records.features).reshape(len(records), -1)
    return signals_of(query)[index].features(as_inputs(flat, query.schema)).numpy()


def blocks(query: FeatureSums, values: np.ndarray) -> dict[str, np.ndarray]:
    return query.layout().split(values * query.grid())


@pytest.mark.parametrize("query", QUERIES, ids=["images", "projected", "table"])
class TestTheSums:
    def test_are_those_of_the_clipped_features_the_server_sees(self, query: FeatureSums) -> None:
        records = some_records(70, query.schema)
        found = blocks(query, feature_sums(query, records, bench(ScriptedEntropy())))
        for index in range(query.signals):
            vectors = features_of(query, index, records).astype(np.float64)
            vectors *= np.minimum(1, query.clip / np.linalg.norm(vectors, axis=1, keepdims=True))
            for label in range(query.schema.classes):
                members = records.labels == label
                difference = found["sums"][index, label] - vectors[members].sum(axis=0)
                assert np.abs(difference).max() <= members.sum() * query.grid() * 1.1
                counted = found["counts"][index, label] / (query.count_step() * query.grid())
                assert counted == members.sum()

    def test_are_taken_over_the_drawn_records_alone(self, query: FeatureSums) -> None:
        records, sampled = some_records(70, query.schema), replace(query, sampling_probability=0.3)
        drawn = SeededEntropy().words(3 * 70).reshape(3, 70) < np.uint64(int(0.3 * 2**64))
        found = query.layout().split(feature_sums(sampled, records, bench(SeededEntropy())))
        for index in range(3):
            chosen = records.take(np.flatnonzero(drawn[index]))
            alone = query.layout().split(feature_sums(query, chosen, bench(ScriptedEntropy())))
            np.testing.assert_array_equal(found["sums"][index], alone["sums"][index])
            np.testing.assert_array_equal(found["counts"][index], alone["counts"][index])

    def test_of_a_range_of_signals_are_those_of_the_whole(self, query: FeatureSums) -> None:
        records = some_records(20, query.schema)
        whole = blocks(query, feature_sums(query, records, bench(ScriptedEntropy())))
        part_query = replace(query, first=1, signals=2)
        part = blocks(part_query, feature_sums(part_query, records, bench(ScriptedEntropy())))
        for name in ("sums", "counts"):
            np.testing.assert_array_equal(part[name], whole[name][1:])

    def test_come_out_the_same_every_time(self, query: FeatureSums) -> None:
        records = some_records(70, query.schema)
        once, again = (feature_sums(query, records, bench(ScriptedEntropy())) for _ in range(2))
        assert once.tobytes() == again.tobytes()

    def test_do_not_depend_on_the_order_of_the_records(self, query: FeatureSums) -> None:
        """On this machine a record's features do not even depend on its place in a batch."""
        records = some_records(150, query.schema)
        shuffled = records.take(np.random.default_rng(1).permutation(150))
        sums = [feature_sums(query, order, bench(ScriptedEntropy())) for order in (records, shuffled)]
        np.testing.assert_array_equal(*sums)

    def test_of_nothing_are_nothing(self, query: FeatureSums) -> None:
        rare = replace(query, sampling_probability=1e-12)
        for records in (some_records(0, query.schema), some_records(20, query.schema)):
            assert not feature_sums(rare, records, bench(SystemEntropy())).any()

    def test_progress_follows_the_signals_in_steps_of_five_percent(self, query: FeatureSums) -> None:
        for count in (0, 1, 70):
            steps: list[float] = []
            feature_sums(query, some_records(count, query.schema), bench(SeededEntropy(), steps.append))
            assert steps == [step / 20 for step in range(1, 21)]


def test_features_that_are_no_numbers_count_as_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    records = some_records(10)
    others = feature_sums(QUERY, records.take(np.array([0, 1, 4, 5, 6, 7, 8, 9])), bench(ScriptedEntropy()))
    whole = feature_sums(QUERY, records, bench(ScriptedEntropy()))
    honest = Signal.features

    def broken(signal: Signal, inputs: torch.Tensor) -> torch.Tensor:
        features = honest(signal, inputs).clone()
        features[2, 0], features[3, 1] = float("nan"), float("inf")
        return features

    monkeypatch.setattr(Signal, "features", broken)
    found = blocks(QUERY, feature_sums(QUERY, records, bench(ScriptedEntropy())))
    np.testing.assert_array_equal(found["sums"], blocks(QUERY, others)["sums"])
    np.testing.assert_array_equal(found["counts"], blocks(QUERY, whole)["counts"])


def test_noise_is_drawn_once_for_every_value_of_every_signal() -> None:
    """Nothing repeats from signal to signal, and its size is the plan's."""
    query = replace(QUERY, signals=40, noise_multiplier=3.0)
    summed = InProcess([some_records(0), some_records(0)], SeededEntropy()).ask(query)
    values = np.concatenate([block.reshape(-1) for block in summed.blocks.values()])
    assert values.std() == pytest.approx(np.sqrt(2) * 3 * query.sensitivity(), rel=0.05)
    assert len(np.unique(summed.blocks["sums"].reshape(40, -1)[:, 0])) == 40


@pytest.mark.parametrize(("smallest_class", "expected"), [(5421, 6.114), (6000, 5.443), (5000, 6.713)])
def test_the_papers_epsilons(smallest_class: int, expected: float) -> None:
    """MNIST, Fashion-MNIST and CIFAR-10 with L = 50, z = 1 and 10,000 signals; PLD is below by 8 %."""
    query = replace(QUERY, signals=10_000, sampling_probability=50 / smallest_class, width=1)
    assert rdp_epsilon([query.event()], 1e-5) == pytest.approx(expected, abs=2e-3)
    assert 0.9 < epsilon([query.event()], 1e-5) / expected < 0.95


def test_a_guard_gives_the_same_bytes_again_and_charges_once(tmp_path: Path) -> None:
    """Records are drawn and noise is added once, however often the same signals are asked for."""
    query = replace(ROWS, schema=SCHEMA, noise_multiplier=4.0, sampling_probability=0.5)
    with closing(open_ledger(tmp_path)) as ledger:
        guard = toy_guard(ledger, epsilon=2.0)
        first, again = (guard.answer(encode(query), ignore_progress) for _ in range(2))
        assert (first.replayed, again.replayed) == (False, True)
        assert first.sealed == again.sealed
        assert guard.budget().epsilon_spent == epsilon([query.event()], guard.budget().delta)
        other = guard.answer(encode(replace(query, first=3)), ignore_progress)
        assert not other.replayed


class TestSignals:
    def test_are_drawn_from_seed_and_index(self) -> None:
        inputs = as_inputs(to_unit_range(some_records(5).features).reshape(5, -1), IMAGES)
        for query in (QUERY, PROJECTED):
            one, same = signals_of(query)[1].features(inputs), signals_of(query)[1].features(inputs)
            assert torch.equal(one, same)
            for other in (signals_of(query)[2], signals_of(replace(query, seed=10))[1]):
                assert not torch.allclose(one, other.features(inputs))

    def test_augmentations_change_with_the_signal(self) -> None:
        signals = signals_of(QUERY)
        assert len({signals[index].augmentation_seed for index in range(20)}) == 20

    def test_all_augmentations_can_be_asked_for(self) -> None:
        assert tuple(OPS) == AUGMENTATIONS

    def test_auxiliary_records_make_the_basis(self) -> None:
        artifact = encode_records(some_records(50).features)
        query = replace(PROJECTED, auxiliary=DIGEST)
        assert query.artifacts() == (DIGEST,)
        projection = signals_of(query, **{DIGEST: artifact})[0].projection
        procedural = signals_of(PROJECTED)[0].projection
        assert projection is not None
        assert procedural is not None
        assert projection.basis.shape == procedural.basis.shape == (16, 6)
        assert not torch.allclose(projection.basis, procedural.basis)


class TestPrincipalComponents:
    def features(self) -> torch.Tensor:
        scale = torch.linspace(2, 0.1, 30)
        return torch.randn(400, 30, generator=torch.Generator().manual_seed(0)) * scale + 5

    def test_keep_most_of_the_variance(self) -> None:
        features = self.features()
        projected = principal_components(features, 10)(features)
        variances = projected.var(dim=0)
        assert (variances.diff() <= 1e-5).all()
        expected = torch.linalg.svdvals((features - features.mean(dim=0)).double())[:10] ** 2 / 399
        torch.testing.assert_close(variances.double(), expected, rtol=1e-4, atol=0)
        torch.testing.assert_close(projected.mean(dim=0), torch.zeros(10), rtol=0, atol=1e-4)

    @pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
    def test_features_that_are_no_numbers_leave_a_basis(self, number: float) -> None:
        features = self.features()
        features[1:] = number
        projection = principal_components(features, 10)
        assert torch.allclose(projection.basis.T @ projection.basis, torch.eye(10), atol=1e-5)
        assert projection.center.isfinite().all()

    def test_never_lengthen_a_vector(self) -> None:
        basis = principal_components(self.features(), 30).basis
        torch.testing.assert_close(basis.T @ basis, torch.eye(30))

    def test_rounding_on_another_machine_hardly_matters(self) -> None:
        features = self.features()
        other = features * (1 + 1e-6 * torch.randn(features.shape, generator=torch.Generator().manual_seed(1)))
        mine, theirs = (principal_components(each, 20)(features) for each in (features, other))
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0.01)


class TestAuxiliaryRecords:
    @pytest.mark.parametrize("schema", [IMAGES, Schema((5, 9, 3), 2), Schema((6, 6, 2), 2)])
    def test_procedural_images_fit_every_schema(self, schema: Schema) -> None:
        images = procedural_auxiliary(schema)
        assert images.shape == (1000, schema.dimension)
        assert np.abs(images).max() <= 1
        assert as_inputs(images, schema).shape == (1000, schema.shape[2], *schema.shape[:2])

    def test_artifacts_come_back(self) -> None:
        records = some_records(4)
        flat = decode_auxiliary(encode_records(records.features), IMAGES)
        np.testing.assert_array_equal(flat, to_unit_range(records.features).reshape(4, -1))

    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            (b"anything", "no safetensors file"),
            (encode_records(np.zeros((4, 8, 8, 1), dtype=np.float32)), "no uint8 records of shape"),
            (encode_records(np.zeros((4, 8, 8, 3), dtype=np.uint8)), "no uint8 records of shape"),
            (encode_records(np.zeros((1, 8, 8, 1), dtype=np.uint8)), "not between 2 and"),
        ],
    )
    def test_artifacts_are_checked(self, content: bytes, reason: str) -> None:
        with pytest.raises(QueryError, match=reason):
            decode_auxiliary(content, IMAGES)
