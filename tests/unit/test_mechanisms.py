"""What the mechanisms compute, before any noise."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from support.entropies import ScriptedEntropy, SeededEntropy
from support.guards import bench

from silosynth.client.guard.entropy import Entropy, SystemEntropy
from silosynth.client.mechanisms import MECHANISMS, exact_sums
from silosynth.common.datasets.records import Records, to_unit_range
from silosynth.common.queries import ClassCounts, Mixtures, Query, SufficientStatistics
from silosynth.common.schema import Schema

IMAGES = Schema((3, 2, 1), 4)
NO_RANDOMNESS = ScriptedEntropy()

COUNTS = ClassCounts(schema=IMAGES, noise_multiplier=1.0)
SUMS = Mixtures(
    schema=IMAGES, noise_multiplier=1.0, mixtures=1, sampling_probability=1.0, center=0.25, clip=1.5, count_weight=0.3
)
MIXTURES = Mixtures(
    schema=IMAGES, noise_multiplier=1.0, mixtures=7, sampling_probability=0.4, center=-0.5, clip=2.0, count_weight=0.3
)
STATISTICS = SufficientStatistics(
    schema=IMAGES, noise_multiplier=1.0, center=0.1, clip=1.7, class_weight=0.5, count_weight=0.25
)
QUERIES = [COUNTS, SUMS, MIXTURES, STATISTICS]
WITHOUT_COINS = [COUNTS, SUMS, STATISTICS]


def images(count: int, schema: Schema = IMAGES, seed: int = 0) -> Records:
    """Random images of all classes but the last."""
    generator = np.random.default_rng(seed)
    pixels = generator.integers(0, 256, (count, *schema.shape), dtype=np.uint8)
    return Records(pixels, generator.integers(0, schema.classes - 1, count), schema)


def run(query: Query, records: Records, entropy: Entropy = NO_RANDOMNESS) -> np.ndarray:
    return MECHANISMS[query.mechanism](query, records, bench(entropy))


def blocks(query: Query, values: np.ndarray) -> dict[str, np.ndarray]:
    """In value units, as the server sees them."""
    return query.layout().split(values * query.grid())


def clipped(records: Records, center: float, clip: float) -> np.ndarray:
    vectors = to_unit_range(records.features).reshape(len(records), -1).astype(np.float64) - center
    return vectors * np.minimum(1, clip / np.linalg.norm(vectors, axis=1, keepdims=True))


def test_there_is_a_mechanism_for_every_query() -> None:
    assert MECHANISMS.keys() == Query.kinds.keys()


def test_class_counts() -> None:
    records = images(100)
    assert blocks(COUNTS, run(COUNTS, records))["counts"].tolist() == np.bincount(records.labels, minlength=4).tolist()


def test_one_mixture_at_rate_one_is_class_sums() -> None:
    records = images(100)
    found = blocks(SUMS, run(SUMS, records))
    vectors = clipped(records, SUMS.center, SUMS.clip)
    for label in range(4):
        members = records.labels == label
        assert np.abs(found["sums"][0, label] - vectors[members].sum(axis=0)).max() <= members.sum() * SUMS.grid()
        assert found["counts"][0, label] == members.sum() * SUMS.count_step() * SUMS.grid()
    assert SUMS.count_step() * SUMS.grid() == pytest.approx(SUMS.count_weight, rel=0.01)


def test_mixtures_are_sums_of_their_samples() -> None:
    """The coins are known here, so every sample is."""
    records = images(50)
    found = run(MIXTURES, records, SeededEntropy())
    drawn = SeededEntropy().words(50 * 7).reshape(50, 7) < np.uint64(int(0.4 * 2**64))
    vectors = exact_sums.clipped(
        to_unit_range(records.features).reshape(50, -1), MIXTURES.center, MIXTURES.clip, MIXTURES.grid()
    )
    expected = MIXTURES.layout().split(found.copy())
    for mixture in range(7):
        for label in range(4):
            members = drawn[:, mixture] & (records.labels == label)
            assert expected["sums"][mixture, label].tolist() == vectors[members].sum(axis=0).tolist()
            assert expected["counts"][mixture, label] == members.sum() * MIXTURES.count_step()


def test_samples_are_real_poisson_samples() -> None:
    """Sizes follow the binomial distribution over the mixtures, so each mixture has coins of its own."""
    schema, size, rate, mixtures = Schema((1,), 1), 30, 0.3, 20_000
    records = Records(np.zeros((size, 1), dtype=np.float32), np.zeros(size, dtype=np.int64), schema)
    query = Mixtures(
        schema=schema,
        noise_multiplier=1.0,
        mixtures=mixtures,
        sampling_probability=rate,
        center=0.0,
        clip=1.0,
        count_weight=1.0,
    )
    sizes = query.layout().split(run(query, records, SystemEntropy()))["counts"] // query.count_step()
    observed = np.bincount(sizes.reshape(-1), minlength=size + 1)
    expected = stats.binom.pmf(np.arange(size + 1), size, rate) * mixtures
    groups = [0, *range(4, 16)]  # the rare sizes at both ends are counted together
    sums = [np.add.reduceat(counts, groups) for counts in (observed, expected)]
    assert stats.chisquare(*sums, sum_check=False).pvalue > 1e-8


def test_sufficient_statistics() -> None:
    records = images(100)
    found = blocks(STATISTICS, run(STATISTICS, records))
    units = clipped(records, STATISTICS.center, STATISTICS.clip) / STATISTICS.clip
    moments = (units.T @ units)[np.triu_indices(6)]
    assert found["moments"] == pytest.approx(moments, abs=100 * 3 * 2**-14)
    for label in range(4):
        members = records.labels == label
        assert found["sums"][label] == pytest.approx(0.5 * units[members].sum(axis=0), abs=100 * 2**-14)
        assert found["counts"][label] == 0.5 * 0.25 * members.sum()


@pytest.mark.parametrize("query", WITHOUT_COINS, ids=lambda query: query.mechanism)
def test_sums_of_shards_are_the_sum_of_the_whole(query: Query) -> None:
    whole = images(500)
    shards = np.array_split(np.random.default_rng(1).permutation(500), 7)
    assert np.array_equal(run(query, whole), sum(run(query, whole.take(shard)) for shard in shards))


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: f"{query.mechanism}-{query.event().count}")
def test_batches_change_nothing(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run(query, images(100), SeededEntropy())
    for size in (1, 7):
        monkeypatch.setattr(exact_sums, "_LARGEST_BATCH", size)
        assert np.array_equal(run(query, images(100), SeededEntropy()), whole)


@pytest.mark.parametrize("query", [MIXTURES, STATISTICS], ids=lambda query: query.mechanism)
@pytest.mark.parametrize("largest", [1, 50])
def test_blocks_change_nothing(query: Query, largest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run(query, images(100), SeededEntropy())
    monkeypatch.setitem(MECHANISMS[query.mechanism].__globals__, "_LARGEST_PRODUCT", largest)
    assert np.array_equal(run(query, images(100), SeededEntropy()), whole)


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: f"{query.mechanism}-{query.event().count}")
def test_empty_silos_and_single_records(query: Query) -> None:
    """The class that no record has is checked above."""
    assert not run(query, images(0), SeededEntropy()).any()
    assert run(query, images(1), SeededEntropy()).shape == (query.layout().size,)


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: f"{query.mechanism}-{query.event().count}")
def test_progress_tells_nothing_about_the_number_of_records(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact_sums, "_LARGEST_BATCH", 10)
    for count in (0, 1, 9, 25, 1000):
        steps: list[float] = []
        MECHANISMS[query.mechanism](query, images(count), bench(SeededEntropy(), steps.append))
        assert steps == [step / 20 for step in range(1, 21)]


def test_tables_are_served_as_well_as_images() -> None:
    schema = Schema((2,), 2)
    records = Records(np.array([[5.0, -0.5], [0.25, 1.0]], dtype=np.float32), np.array([0, 1]), schema)
    query = Mixtures(
        schema=schema,
        noise_multiplier=1.0,
        mixtures=1,
        sampling_probability=1.0,
        center=0.0,
        clip=2**0.5,
        count_weight=0.5,
    )
    assert blocks(query, run(query, records))["sums"].tolist() == [[[1.0, -0.5], [0.25, 1.0]]]
