"""What is computed of a record is its own to the last bit: no server can make rounding errors tell of a neighbour."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from support.entropies import SeededEntropy
from support.guards import bench
from support.moments import moments_query

from silosynth.client.guard.mechanism import Mechanism
from silosynth.client.mechanisms import places
from silosynth.client.mechanisms.feature_sums import feature_sums
from silosynth.client.mechanisms.gradient_sums import gradient_sums
from silosynth.client.mechanisms.moments import moments
from silosynth.client.mechanisms.record_gradients import clipped_sum, per_record_gradients
from silosynth.client.mechanisms.votes import votes
from silosynth.common.auxiliary import encode_records
from silosynth.common.backbones import Backbone, backbone, backbone_for, encode_backbone
from silosynth.common.datasets import Records, load
from silosynth.common.networks.extractors import Network, draw_network
from silosynth.common.networks.weights import encode_networks
from silosynth.common.queries import FeatureSums, GradientSums, Moments, Votes
from silosynth.common.schema import Schema
from silosynth.common.statistics.reading import projection
from silosynth.common.statistics.spatial import SpatialFeatures

RECORDS, HUGE = 360, 1e12
FILES = ("0" * 64, "1" * 64)
PROCESSORS = {
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "sse": {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2"},
    "old-mkl": {"MKL_ENABLE_INSTRUCTIONS": "SSE4_2"},
}


def hostile_network(schema: Schema, width: int) -> Network:
    """Two equal channels and a classifier that takes their difference, times a huge number: rounding errors alone."""
    network = draw_network("convnet", schema, width, 0)
    with torch.no_grad():
        for layer in network.extractor:
            if isinstance(layer, torch.nn.Conv2d):
                layer.weight[1], layer.bias[1] = layer.weight[0], layer.bias[0]  # type: ignore[index]
        places_a_channel = network.classifier.in_features // width
        huge = HUGE * torch.randn(schema.classes, places_a_channel, generator=torch.Generator().manual_seed(0))
        blind = torch.zeros(schema.classes, (width - 2) * places_a_channel)
        network.classifier.weight.copy_(torch.cat([huge, -huge, blind], dim=1))
        network.classifier.bias.zero_()
    return network


def change(mechanism: Mechanism, query: GradientSums | Moments, everybody: Records, file: bytes) -> float:
    """How far the sum moves, of the sensitivity, when the first of many records goes and all others move up."""
    place = bench(SeededEntropy(), artifacts={FILES[0]: file})
    sums = [mechanism(query, records, place) for records in (everybody, everybody.take(np.arange(1, RECORDS)))]
    return float(np.linalg.norm((sums[0] - sums[1]).astype(np.float64)) * query.grid() / query.sensitivity())


def change_of_gradients(side: int, width: int, classes: int) -> float:
    schema, dice = Schema((side, side, 1), classes), np.random.default_rng(0)
    images = dice.integers(0, 256, (RECORDS, *schema.shape), dtype=np.uint8)
    everybody = Records(images, dice.integers(0, classes, RECORDS), schema)
    query = GradientSums(
        schema=schema, noise_multiplier=1.0, width=width, weights=FILES[0], sampling_probability=1.0, clip=1.0
    )
    return change(gradient_sums, query, everybody, encode_networks([hostile_network(schema, width)]))


def change_of_moments(mean: float, std: float) -> float:
    """Through a network whose channels cancel each other out when they are projected: rounding errors alone.

    Mean and standard deviation that it takes images to have could blind a trial: all its activations would be 1.
    """
    schema, dice, size = Schema((6, 6, 1), 2), np.random.default_rng(1), 3
    drawn = backbone("residual-24", 1)
    network = Backbone(drawn.blueprint.model_copy(update={"mean": (mean,), "std": (std,)}), drawn.network, {})
    unseen = torch.linalg.svd(projection(0, 0, 0, size, 24).double()).Vh[-1].float()
    with torch.no_grad():
        stem = drawn.network.get_parameter("stem.conv.weight")
        stem.copy_(HUGE * unseen[:, None, None, None] * stem[:1])
    query = moments_query(
        schema=schema, backbone=FILES[0], global_dimension=size, class_dimension=size, class_layers=1, seed=0
    )
    images = dice.integers(0, 256, (2, *schema.shape), dtype=np.uint8)[np.arange(RECORDS) % 2]
    everybody = Records(images, dice.integers(0, 2, RECORDS), schema)
    return change(moments, query, everybody, encode_backbone(network))


def stray_votes() -> int:
    """Those not for the first of equal candidates: of a class, all are one image, so that rounding could decide."""
    records = load("digits", split="train")
    schema, network = records.schema, backbone_for(records.schema, None)
    image = np.random.default_rng(1).integers(0, 256, (1, *schema.shape), dtype=np.uint8)
    query = Votes(
        schema=schema,
        noise_multiplier=1.0,
        backbone=FILES[0],
        features=SpatialFeatures(network).size(schema.shape),
        candidates=FILES[1],
        per_class=7,
        views=1,
    )
    files = {FILES[0]: encode_backbone(network), FILES[1]: encode_records(image.repeat(query.images, axis=0))}
    found = votes(query, records, bench(SeededEntropy(), artifacts=files)).reshape(schema.classes, query.per_class)
    return int(found[:, 1:].sum())


def worst_change() -> float:
    kinds = [(6, 3, 2), (15, 3, 2), (28, 2, 10)]
    moments_change = max(change_of_moments(mean, std) for mean, std in ((0.0, 1.0), (1e3, 1e-3)))
    return max(moments_change, *(change_of_gradients(*kind) for kind in kinds))


def test_here() -> None:
    assert worst_change() <= 1
    assert stray_votes() == 0


@pytest.mark.parametrize(("processor", "threads"), [("avx2", "1"), ("avx2", "2"), ("sse", "1"), ("old-mkl", "1")])
def test_on_an_older_processor(processor: str, threads: str) -> None:
    """Matrix products round some rows otherwise there: one record moved gradients by 14 times what it may."""
    program = (
        f"import sys; sys.path[:0] = {sys.path!r}; import test_places as t; print(t.worst_change(), t.stray_votes())"
    )
    environment = (
        os.environ | PROCESSORS[processor] | {"OMP_NUM_THREADS": threads, "PYTHONPATH": str(Path(__file__).parent)}
    )
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    worst, stray = done.stdout.split()
    assert float(worst) <= 1
    assert stray == "0"


class TestTrial:
    """Of computations that round otherwise at some places, made up here."""

    @pytest.fixture(autouse=True)
    def _nothing_known(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(places, "_chosen", {})

    def chosen(self, odd: slice, smallest: int = 0) -> int:
        def rows(records: torch.Tensor) -> torch.Tensor:
            found = records * 3
            if len(records) >= smallest:
                found[odd] = torch.nextafter(found[odd], torch.tensor(torch.inf))
            return found

        return places.batch_size("made up", 128, lambda: (rows, lambda count: (torch.randn(count, 2),)))

    def test_places_that_stay_blank_may_be_odd(self) -> None:
        assert self.chosen(slice(-places.BLANKS, None)) == 128

    @pytest.mark.parametrize("odd", [slice(1), slice(17, 18), slice(-9, None), slice(1, None, 2)])
    def test_records_go_one_by_one_where_no_size_will_do(self, odd: slice) -> None:
        assert self.chosen(odd, smallest=2) == 1

    def test_a_smaller_batch_may_do(self) -> None:
        assert self.chosen(slice(70, 71), smallest=80) == 64


@pytest.mark.parametrize("size", [1, 32])
def test_every_record_gets_its_row(size: int) -> None:
    records, labels = torch.randn(50, 3), torch.arange(50)
    sizes = []

    def rows(records: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        sizes.append(len(records))
        return records * labels[:, None]

    found = torch.cat(list(places.in_batches(rows, size, records, labels)))
    assert torch.equal(found, records * labels[:, None])
    assert set(sizes) == {size}
    (none,) = places.in_batches(rows, size, records[:0], labels[:0])
    assert none.shape == (0, 3)
    assert sizes[-1] == size, "memory that a batch takes must not tell whether there is a record"


def test_gradients_one_by_one_are_those_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    schema, dice = Schema((28, 28, 1), 10), torch.Generator().manual_seed(0)
    network = draw_network("convnet", schema, 2, 0)
    gradients = per_record_gradients(network)
    weights = torch.cat([part.detach().flatten() for part in network.parameters()])
    seen, labels = torch.randn(5, 1, 28, 28, generator=dice), torch.arange(5)
    together = clipped_sum(gradients, weights, seen, labels, clip=1.0)
    monkeypatch.setattr(places, "_chosen", {})
    monkeypatch.setattr(places, "_SIZES", ())
    assert gradients.batch_size(seen.shape[1:]) == 1
    one_by_one = clipped_sum(gradients, weights, seen, labels, clip=1.0)
    assert np.linalg.norm(one_by_one - together) < 1e-3 * np.linalg.norm(together)


def test_a_server_has_no_say_in_the_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random features of a huge length scale, networks of zeros: there nothing could show that places are not alike."""
    tried = list[torch.Tensor]()

    def noted(kind: object, largest: int, trial: Callable[[], tuple[places.Rows, places.Samples]]) -> int:
        rows, samples = trial()
        tried.append(rows(*samples(3)))
        return 1

    monkeypatch.setattr(sys.modules[feature_sums.__module__], "batch_size", noted)
    schema = Schema((6,), 2)
    for length_scale, seed in ((0.5, 1), (1e3, 2)):
        query = FeatureSums(
            schema=schema,
            noise_multiplier=1.0,
            first=0,
            signals=1,
            sampling_probability=0.5,
            network="fourier",
            width=16,
            seed=seed,
            augmentation="",
            projected=0,
            auxiliary="",
            clip=1.0,
            count_weight=0.1,
            length_scale=length_scale,
        )
        feature_sums(
            query, Records(np.zeros((4, 6), np.float32), np.zeros(4, np.int64), schema), bench(SeededEntropy())
        )
    assert torch.equal(*tried)
    assert len(tried[0].unique()) > tried[0].numel() / 2
