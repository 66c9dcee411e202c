"""A record's gradient is its own to the last bit: weights that let rounding errors decide give no neighbour away."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from support.entropies import SeededEntropy
from support.guards import bench

from silosynth.client.mechanisms import record_gradients
from silosynth.client.mechanisms.gradient_sums import gradient_sums
from silosynth.common.datasets import Records
from silosynth.common.networks.extractors import Network, draw_network
from silosynth.common.networks.weights import encode_networks
from silosynth.common.queries import GradientSums
from silosynth.common.schema import Schema

SCHEMA = Schema((28, 28, 1), 10)
RECORDS, WIDTH, HUGE = 512, 2, 1e12
OLDER_PROCESSOR = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}


def hostile_network() -> Network:
    """Two equal channels and a classifier that takes their difference, times a huge number: rounding errors alone."""
    network = draw_network("convnet", SCHEMA, WIDTH, 0)
    with torch.no_grad():
        for layer in network.extractor:
            if isinstance(layer, torch.nn.Conv2d):
                layer.weight[1], layer.bias[1] = layer.weight[0], layer.bias[0]  # type: ignore[index]
        half = network.classifier.in_features // WIDTH
        weights = HUGE * torch.randn(SCHEMA.classes, half, generator=torch.Generator().manual_seed(0))
        network.classifier.weight.copy_(torch.cat([weights, -weights], dim=1))
        network.classifier.bias.zero_()
    return network


def change_by_one_record() -> float:
    """How far the sum moves, of the sensitivity, when the first of many records is left out and all others move up."""
    dice = np.random.default_rng(0)
    images = dice.integers(0, 256, (RECORDS, *SCHEMA.shape), dtype=np.uint8)
    everybody = Records(images, dice.integers(0, SCHEMA.classes, RECORDS), SCHEMA)
    query = GradientSums(
        schema=SCHEMA, noise_multiplier=1.0, width=WIDTH, weights="0" * 64, sampling_probability=1.0, clip=1.0
    )
    place = bench(SeededEntropy(), artifacts={"0" * 64: encode_networks([hostile_network()])})
    sums = [gradient_sums(query, records, place) for records in (everybody, everybody.take(np.arange(1, RECORDS)))]
    return float(np.linalg.norm((sums[0] - sums[1]).astype(np.float64)) * query.grid() / query.sensitivity())


def test_here() -> None:
    assert change_by_one_record() <= 1


@pytest.mark.parametrize("threads", ["1", "2"])
def test_on_an_older_processor(threads: str) -> None:
    """Whose matrix products round the last rows of a batch otherwise: there, one record moved the sum by 5.7."""
    program = (
        f"import sys; sys.path[:0] = {sys.path!r}; import test_record_gradients as t; print(t.change_by_one_record())"
    )
    environment = os.environ | OLDER_PROCESSOR | {"OMP_NUM_THREADS": threads, "PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) <= 1


def test_records_are_taken_one_by_one_where_places_are_not_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    network = draw_network("convnet", SCHEMA, WIDTH, 0)
    gradients, weights = (
        record_gradients.per_record_gradients(network),
        torch.randn(sum(part.numel() for part in network.parameters()), generator=torch.Generator().manual_seed(0)),
    )
    seen, labels = torch.randn(5, 1, 28, 28, generator=torch.Generator().manual_seed(1)), torch.arange(5)
    together = gradients(weights, seen, labels)
    monkeypatch.setattr(record_gradients, "_known_to_be_alike", {})
    monkeypatch.setattr(
        record_gradients.RecordGradients, "_together", lambda *_: np.arange(6, dtype=np.float32)[:, None]
    )
    assert gradients(weights, seen, labels) == pytest.approx(together, rel=1e-3, abs=1e-3)
