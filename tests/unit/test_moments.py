"""Moments of activations: counts of the paper, and ghost clipping against a record by record computation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from support.entropies import ScriptedEntropy
from support.guards import bench
from support.moments import HONEST, HOSTILE, LAYERS, SHELF, moments_query, shelve, shelved_center
from torch import Tensor

from silosynth.client.mechanisms import places
from silosynth.client.mechanisms.moments import moments
from silosynth.common.backbones import backbone, decode_backbone, encode_backbone
from silosynth.common.datasets.records import Records, to_unit_range
from silosynth.common.errors import QueryError
from silosynth.common.queries import Moments
from silosynth.common.queries.moments import layer_size
from silosynth.common.schema import Schema
from silosynth.common.statistics import MomentStatistics, decode_center, encode_center, flatten, split, unflatten
from silosynth.common.statistics.groups import Groups, membership
from silosynth.common.statistics.layer import Center, FullMoments, GramMoments, layer_moments
from silosynth.common.statistics.triangles import pack, squared_norm, unpack

CLASSES = 4
PLAIN = moments_query()
WIDE = moments_query(global_dimension=24, class_dimension=30)  # beyond four positions: Gram matrices
GROUPED = moments_query(pseudo_classes=6, classes_per_pseudo_class=2)
CENTERED = replace(PLAIN, center=shelved_center(PLAIN, 0, 0.3), clip=2.0**-4)
WIDE_CENTERED = replace(WIDE, center=shelved_center(WIDE, 1, 0.3))
BOTH = replace(GROUPED, center=shelved_center(GROUPED, 2, 0.3), class_dimension=5)
LOOSE = replace(BOTH, clip=4.0)
QUERIES = [PLAIN, WIDE, GROUPED, CENTERED, WIDE_CENTERED, BOTH, LOOSE]
NAMES = ["plain", "wide", "grouped", "centered", "wide-centered", "both", "loose"]
every_query = pytest.mark.parametrize("query", QUERIES, ids=NAMES)


def some_records(count: int, seed: int = 0) -> Records:
    """Of all classes but the last."""
    generator = np.random.default_rng(seed)
    pixels = generator.integers(0, 256, (count, *PLAIN.schema.shape), dtype=np.uint8)
    return Records(pixels, generator.integers(0, CLASSES - 1, count), PLAIN.schema)


def run(query: Moments, records: Records) -> np.ndarray:
    return moments(query, records, bench(ScriptedEntropy(), artifacts=SHELF))


def statistics_of(query: Moments) -> MomentStatistics:
    center = decode_center(SHELF[query.center], query) if query.center else None
    return MomentStatistics(query, decode_backbone(SHELF[query.backbone], "test"), center)


def tensors(records: Records) -> tuple[Tensor, Tensor]:
    images = torch.from_numpy(to_unit_range(records.features)).permute(0, 3, 1, 2)
    return images, torch.from_numpy(records.labels)


def naive(query: Moments, records: Records) -> np.ndarray:
    """One record after the other, with everything written out, in double precision but for the network itself."""
    statistics = statistics_of(query)
    center = flatten(decode_center(SHELF[query.center], query)) if query.center else torch.zeros(1)
    rows = [one_vector(query, statistics, *pair) for pair in zip(*tensors(records), strict=True)]
    total = torch.zeros(query.moments_layout().size, dtype=torch.float64)
    for vector, held in rows:
        scale = torch.where(class_places(query), query.class_scale, 1.0)
        difference = scale * torch.where(held, vector - center, 0.0)
        total += difference * min(1, query.bound / float(difference.norm()))
    return total.numpy()


def class_places(query: Moments) -> Tensor:
    return torch.arange(query.moments_layout().size) >= query.layers * layer_size(query.global_dimension)


def one_vector(query: Moments, statistics: MomentStatistics, image: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
    """A record's moments, and which coordinates it counts in."""
    taps = [tap[0].flatten(1).double() for tap in statistics._backbone.forward_taps(image[None])]
    readings = [(statistics._global, taps), (statistics._class, taps[-query.class_layers :])]
    means, seconds = [], []
    for reading, layers in readings:
        pairs = zip(reading._projections, layers, strict=True)
        activations = [2 * torch.sigmoid(matrix.double() @ tap) - 1 for matrix, tap in pairs]
        means.append(torch.cat([z.mean(1) for z in activations]))
        seconds.append(torch.cat([pack(z @ z.T / z.shape[1]) for z in activations]))
    held = statistics.membership[:, label] > 0
    everywhere = torch.ones(len(means[0]) + len(seconds[0]), dtype=torch.bool)
    mask = [everywhere, held.repeat_interleave(len(means[1])), held.repeat_interleave(len(seconds[1]))]
    vector = torch.cat([means[0], seconds[0], means[1].repeat(len(held)), seconds[1].repeat(len(held))])
    return vector, torch.cat(mask)


def assert_close(found: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    assert np.linalg.norm(found - expected) <= tolerance * np.linalg.norm(expected)


def test_the_papers_counts() -> None:
    """CIFAR-10 with SPS at epsilon 1: [192, 192], the 19 BatchNorm layers of WRN-22-8, classes at the last three."""
    query = moments_query(
        schema=Schema((32, 32, 3), 10), layers=19, global_dimension=192, class_dimension=192, class_layers=3
    )
    assert query.moments_layout().size == 917_280
    assert query.layout().size == 917_280 + 10
    assert query.bound == pytest.approx((2 * 19 * 18_720) ** 0.5 / 8)
    assert len(backbone("wrn-22-8", 3).tap_shapes(32, 32)) == 19


@every_query
def test_classes_weigh_as_much_as_all_layers(query: Moments) -> None:
    per_class = query.class_layers * layer_size(query.class_dimension)
    assert query.class_scale**2 * per_class == pytest.approx(query.layers * layer_size(query.global_dimension))


@every_query
def test_slack_is_within_one_percent(query: Moments) -> None:
    assert query.grid() * query.moments_layout().size ** 0.5 <= 2.0**-12 * query.bound
    assert query.bound < query.sensitivity() <= 1.01 * query.bound * (1 + 0.15**2) ** 0.5
    assert query.count_step() * query.grid() == pytest.approx(0.15 * query.bound, rel=1e-3)


@every_query
def test_ghost_clipping_is_clipping(query: Moments) -> None:
    records = some_records(20)
    sums = statistics_of(query).clipped_sums(*tensors(records))
    assert_close(flatten(sums).numpy(), naive(query, records), 1e-5)


@every_query
def test_the_mechanism_releases_these_sums_and_counts(query: Moments) -> None:
    records = some_records(20)
    released = run(query, records) * query.grid()
    sums, counts = split(released, query)
    assert_close(flatten(sums).numpy(), naive(query, records), 1e-3)
    assert counts.tolist() == np.bincount(records.labels, minlength=CLASSES).tolist()


@every_query
def test_order_and_shards_change_nothing_but_the_last_step(query: Moments) -> None:
    whole = some_records(400)
    order = np.random.default_rng(1).permutation(len(whole))
    expected = run(query, whole)
    assert np.array_equal(run(query, whole.take(order)), expected)
    together = sum(run(query, whole.take(shard)) for shard in np.array_split(order, 5))
    assert np.abs(together - expected).max() <= 3


@every_query
def test_batches_change_next_to_nothing(query: Moments, monkeypatch: pytest.MonkeyPatch) -> None:
    """Activations may be rounded otherwise in others."""
    whole = some_records(100)
    expected = run(query, whole)
    for sizes in ((), (32,)):
        monkeypatch.setattr(places, "_chosen", {})
        monkeypatch.setattr(places, "_SIZES", sizes)
        assert_close(run(query, whole), expected, 1e-4)


@every_query
def test_estimates_of_releases_and_synthetic_means_are_comparable(query: Moments) -> None:
    """Images compared with themselves agree, also where there are no images of a class."""
    records, statistics = some_records(300), statistics_of(query)
    estimate = statistics.estimate(*split(run(query, records) * query.grid(), query))
    for released, direct in zip(estimate, statistics.clipped_means(*tensors(records)), strict=True):
        assert released.shape == direct.shape
        assert torch.allclose(released, direct, atol=5e-4)


def test_without_clipping_means_are_means() -> None:
    images, labels = tensors(some_records(50))
    plain, centered = statistics_of(PLAIN).means(images, labels), statistics_of(BOTH).means(images, labels)
    assert torch.allclose(plain.means, centered.means, atol=1e-5)
    assert torch.allclose(plain.seconds, centered.seconds, atol=1e-5)
    for label in range(CLASSES - 1):
        alone = statistics_of(PLAIN).means(images[labels == label], labels[labels == label])
        assert torch.allclose(alone.class_means[label], plain.class_means[label], atol=1e-6)
        assert torch.allclose(alone.class_seconds[label], plain.class_seconds[label], atol=1e-6)


@every_query
def test_gradients_reach_the_images(query: Moments) -> None:
    images, labels = tensors(some_records(6))
    images.requires_grad_(True)
    flatten(statistics_of(query).clipped_means(images, labels)).square().sum().backward()
    assert images.grad is not None
    assert torch.isfinite(images.grad).all()
    assert (images.grad.flatten(1).abs().sum(1) > 0).all()


@pytest.mark.parametrize("centered", [False, True])
@pytest.mark.parametrize("groups", [1, 3])
def test_both_ways_to_take_moments_agree(groups: int, centered: bool) -> None:
    torch.manual_seed(0)
    activations, weights = torch.rand(9, 5, 8) * 2 - 1, torch.rand(9, dtype=torch.float64)
    half = torch.rand(groups, 8, 8, dtype=torch.float64).float().double()
    center = Center(half[:, 0], (half + half.mT) / 2) if centered else None
    sorted_in = Groups(torch.randint(0, groups, (9,)), groups)
    full, gram = (kind(activations, activations.mean(1), sorted_in, center) for kind in (FullMoments, GramMoments))
    assert torch.allclose(full.squared_norms(), gram.squared_norms(), rtol=1e-5)
    for one, other in zip(full.sums(weights), gram.sums(weights), strict=True):
        assert torch.allclose(one, other, atol=1e-5)


def test_the_smaller_way_is_taken() -> None:
    alone = Groups(torch.zeros(1, dtype=torch.long), 1)
    assert isinstance(layer_moments(torch.zeros(1, 4, 16), alone, None), FullMoments)
    assert isinstance(layer_moments(torch.zeros(1, 4, 17), alone, None), GramMoments)


def test_a_record_sees_no_other_record() -> None:
    """What the sensitivity rests on: activations of the others stay the same, bit by bit, whoever takes a place."""
    seen: list[list[Tensor]] = []
    for pixel in (0, 255):
        records = some_records(128)
        records.features[77] = pixel
        images, _ = tensors(records)
        seen.append([tap[torch.arange(128) != 77] for tap in statistics_of(PLAIN)._backbone.forward_taps(images)])
    assert all(torch.equal(*pair) for pair in zip(*seen, strict=True))


@pytest.mark.parametrize("query", [PLAIN, WIDE, BOTH], ids=["plain", "wide", "both"])
def test_full_batches_keep_to_the_sensitivity(query: Moments) -> None:
    """All records alike: whatever were wrong with one would add up."""
    records = some_records(1).take(np.zeros(128, dtype=np.int64))
    change = (run(query, records) - run(query, records.take(np.arange(127)))) * query.grid()
    assert np.linalg.norm(change) <= query.sensitivity()
    assert np.linalg.norm(change[: -query.schema.classes]) == pytest.approx(query.bound, rel=1e-3)


@pytest.mark.parametrize("digest", HOSTILE)
def test_hostile_weights_give_finite_sums(digest: str) -> None:
    query, records = replace(PLAIN, backbone=digest), some_records(30)
    change = run(query, records) - run(query, records.take(np.arange(29)))
    assert np.linalg.norm(change * query.grid()) <= query.sensitivity()


@every_query
def test_empty_silos(query: Moments) -> None:
    assert not run(query, some_records(0)).any()


def test_progress_tells_nothing_about_the_number_of_records() -> None:
    for count in (0, 1, 119, 121, 300):
        steps: list[float] = []
        moments(PLAIN, some_records(count), bench(ScriptedEntropy(), steps.append, SHELF))
        assert steps == [step / 20 for step in range(1, 21)]


def test_backbones_that_do_not_fit_are_refused() -> None:
    colour = shelve(encode_backbone(backbone("residual-24", 3)))
    two_channels = moments_query(schema=Schema((8, 8, 2), 4), backbone=colour)
    for query, complaint in [
        (replace(PLAIN, layers=LAYERS - 1), "7 layers"),
        (two_channels, "3 channels"),
        (replace(PLAIN, schema=Schema((1, 1, 1), 4)), "1x1"),
        (replace(PLAIN, backbone=shelve(b"nonsense")), "no backbone of ours"),
    ]:
        with pytest.raises(QueryError, match=complaint):
            run(query, Records(np.zeros((1, *query.schema.shape), np.uint8), np.zeros(1, np.int64), query.schema))


def test_grey_images_pass_through_colour_backbones() -> None:
    colour = shelve(encode_backbone(backbone("residual-24", 3)))
    assert run(replace(PLAIN, backbone=colour), some_records(3)).any()


def test_centers_that_do_not_fit_are_refused() -> None:
    good = encode_center(unflatten(np.zeros(PLAIN.moments_layout().size), PLAIN))
    assert not any(part.any() for part in decode_center(good, PLAIN))
    far = good[:-4] + np.float32(1.5).tobytes()
    for content in (b"", b"nonsense", good[:-4], far, good[:-4] + np.float32(np.nan).tobytes(), good + bytes(9999)):
        with pytest.raises(QueryError, match="centre"):
            decode_center(content, PLAIN)
    with pytest.raises(QueryError, match="centre"):
        decode_center(good, WIDE)


@pytest.mark.parametrize(("classes", "groups", "members"), [(10, 40, 2), (100, 200, 10), (10, 15, 4), (3, 1, 3)])
def test_pseudo_classes_are_balanced_and_random(classes: int, groups: int, members: int) -> None:
    held = membership(classes, groups, members, 1)
    assert held.sum(1).tolist() == [members] * groups
    assert held.sum(0).tolist() == [groups * members // classes] * classes
    assert torch.equal(held, membership(classes, groups, members, 1))
    assert groups == 1 or not torch.equal(held, membership(classes, groups, members, 2))


def test_projections_never_change() -> None:
    """Both sides draw them from the seed, maybe with different versions of this program."""
    projections = statistics_of(PLAIN)._global._projections
    assert [round(float(matrix[0, 0]), 5) for matrix in projections] == [
        *(0.05252, -0.20277, -0.20526, 0.29576, -0.14382, -0.10923, 0.17586)
    ]
    assert membership(4, 2, 2, 7).tolist() == [[1, 0, 1, 0], [0, 1, 0, 1]]


def test_projections_keep_magnitudes() -> None:
    query = moments_query(global_dimension=512)
    for matrix in statistics_of(query)._global._projections:
        assert float(matrix.square().sum(1).mean()) == pytest.approx(1, abs=0.2)


def test_triangles() -> None:
    half = torch.randn(3, 4, 4)
    matrices = half + half.mT
    assert torch.equal(unpack(pack(matrices), 4), matrices)
    assert torch.allclose(squared_norm(matrices), pack(matrices).square().sum(-1))


def test_flat_vectors_follow_the_layout() -> None:
    flat = np.random.default_rng(0).normal(size=GROUPED.moments_layout().size)
    assert np.array_equal(flatten(unflatten(flat, GROUPED)).numpy(), flat)
    blocks = GROUPED.moments_layout().split(flat)
    assert np.array_equal(unflatten(flat, GROUPED).class_means.numpy(), blocks["class_means"])


def test_artifacts_are_named_and_used() -> None:
    assert not np.array_equal(run(PLAIN, some_records(5)), run(replace(PLAIN, backbone=HOSTILE[1]), some_records(5)))
    assert PLAIN.artifacts() == PLAIN.backbones() == (HONEST,)
    assert CENTERED.artifacts() == (HONEST, CENTERED.center)
