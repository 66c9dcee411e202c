"""Post-processing of releases: denoising, contrast, variation."""

from __future__ import annotations

import numpy as np
import pytest

from silosynth.common.schema import Schema
from silosynth.server.synthesis.contrast import in_box
from silosynth.server.synthesis.denoise import denoised_counts, denoised_means, shrunk
from silosynth.server.synthesis.frequencies import band_means, from_frequencies, to_frequencies
from silosynth.server.synthesis.variation import vary

COLOUR = Schema((8, 6, 3), 5)
TABLE = Schema((20,), 4)


@pytest.mark.parametrize("schema", [COLOUR, TABLE])
def test_frequencies_are_a_rotation(schema: Schema) -> None:
    rows = np.random.default_rng(0).normal(size=(7, schema.dimension))
    coefficients = to_frequencies(rows, schema)
    np.testing.assert_allclose(np.linalg.norm(coefficients, axis=1), np.linalg.norm(rows, axis=1))
    np.testing.assert_allclose(from_frequencies(coefficients, schema), rows, atol=1e-12)


def test_bands_keep_the_total_and_part_low_from_high() -> None:
    flat = to_frequencies(np.ones((1, COLOUR.dimension)), COLOUR)[0] ** 2
    banded = band_means(flat, COLOUR)
    assert banded.sum() == pytest.approx(COLOUR.dimension)
    np.testing.assert_allclose(banded.reshape(COLOUR.shape)[0, 0], COLOUR.dimension / 3)
    np.testing.assert_allclose(banded.reshape(COLOUR.shape)[1:, 1:], 0, atol=1e-9)


@pytest.mark.parametrize("schema", [COLOUR, TABLE])
class TestShrunk:
    def test_pure_noise_nearly_vanishes(self, schema: Schema) -> None:
        noise = np.random.default_rng(1).normal(0, 3, (200, schema.dimension))
        assert np.square(shrunk(noise, np.full(200, 9.0), schema)).mean() < 0.05 * 9

    def test_without_noise_nothing_changes(self, schema: Schema) -> None:
        rows = np.random.default_rng(2).normal(size=(10, schema.dimension))
        np.testing.assert_allclose(shrunk(rows, np.zeros(10), schema), rows, atol=1e-6)

    def test_noisier_rows_are_shrunk_more(self, schema: Schema) -> None:
        rows = np.random.default_rng(3).normal(0, 2, (2, schema.dimension))
        calm, wild = np.abs(shrunk(rows, np.array([0.1, 3.0]), schema) / rows).mean(axis=1)
        assert calm > wild


def test_smooth_means_are_recovered_from_noise() -> None:
    generator = np.random.default_rng(4)
    decay = 1.0 / (1 + np.add.outer(np.arange(8), np.arange(6))[..., None]) ** 2
    smooth = from_frequencies((generator.normal(size=(5, 8, 6, 3)) * decay * 4).reshape(5, -1), COLOUR)
    counts, noise_std = np.array([100.0, 80.0, 120.0, 90.0, 110.0]), 60.0
    sums = smooth * counts[:, None] + generator.normal(0, noise_std, smooth.shape)
    raw_error = np.square(sums / counts[:, None] - smooth).mean()
    assert np.square(denoised_means(sums, counts, noise_std**2, COLOUR) - smooth).mean() < raw_error / 2


def test_a_class_too_small_for_its_noise_becomes_the_mean_of_all() -> None:
    means = np.random.default_rng(5).normal(size=(4, 20))
    counts = np.array([1000.0, 1000.0, 1000.0, 1.0])
    denoised = denoised_means(means * counts[:, None], counts, 100.0, TABLE)
    grand = (means * counts[:, None]).sum(axis=0) / counts.sum()
    assert np.linalg.norm(denoised[3] - grand) < 0.05 * np.linalg.norm(means[3] - grand)
    assert np.linalg.norm(denoised[0] - means[0]) < 0.05 * np.linalg.norm(means[0])


class TestDenoisedCounts:
    def test_differences_that_noise_explains_are_dropped(self) -> None:
        np.testing.assert_allclose(denoised_counts(np.array([90.0, 100.0, 110.0]), 200.0), 100)

    def test_differences_that_noise_does_not_explain_stay(self) -> None:
        counts = np.array([10.0, 500.0, 1000.0])
        np.testing.assert_allclose(denoised_counts(counts, 1.0), counts, rtol=1e-3)
        np.testing.assert_array_equal(denoised_counts(counts, 0.0), counts)

    def test_never_below_one(self) -> None:
        assert (denoised_counts(np.array([-50.0, -40.0]), 4.0) == 1).all()
        assert denoised_counts(np.array([-3.0]), 4.0) == 1


class TestInBox:
    def test_images_fill_the_box_whatever_their_length(self) -> None:
        rows = np.random.default_rng(6).normal(size=(50, COLOUR.dimension))
        dim, bright = in_box(0.01 * rows, -0.25, COLOUR), in_box(100 * rows, -0.25, COLOUR)
        np.testing.assert_allclose(dim, bright)
        assert (np.abs(dim) == 1).mean() == pytest.approx(0.02, abs=0.002)

    def test_a_tables_values_keep_their_size(self) -> None:
        rows = np.array([[0.5, -0.25] * 10, [3.0, -3.0] * 10])
        np.testing.assert_allclose(in_box(rows, 0.25, TABLE)[0, :2], [0.75, 0.0])
        np.testing.assert_allclose(in_box(rows, 0.25, TABLE)[1, :2], [1.0, -1.0])

    def test_nothing_but_the_centre_is_no_division_by_zero(self) -> None:
        np.testing.assert_allclose(in_box(np.zeros((2, COLOUR.dimension)), 0.5, COLOUR), 0.5)


class TestVary:
    def records(self) -> np.ndarray:
        means = np.random.default_rng(7).uniform(-0.5, 0.5, (5, COLOUR.dimension))
        means[:, :10] = -1
        return np.tile(means, (40, 1, 1))

    def test_what_is_black_in_all_records_stays_black(self) -> None:
        varied = vary(self.records(), COLOUR, seed=0)
        assert (varied[..., :10] == -1).all()
        assert varied[..., 10:].std(axis=0).min() > 0.02
        assert np.abs(varied).max() <= 1

    def test_class_means_stay_where_they_are(self) -> None:
        assert np.abs(vary(self.records(), COLOUR, seed=0).mean(axis=0) - self.records()[0]).max() < 0.3

    def test_the_seed_decides(self) -> None:
        first, again, other = (vary(self.records(), COLOUR, seed) for seed in (1, 1, 2))
        np.testing.assert_array_equal(first, again)
        assert not np.array_equal(first, other)

    def test_equal_classes_get_no_variation(self) -> None:
        np.testing.assert_array_equal(vary(np.zeros((3, 5, COLOUR.dimension)), COLOUR, seed=0), 0)
