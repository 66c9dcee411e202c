"""What feature sums cost beside the bare networks, how fast records are matched with them, and what a silo sends."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from support.asked_guards import asked_guards
from support.entropies import SeededEntropy
from support.guards import bench
from support.timing import fastest_seconds, one_thread
from torch import nn

from silosynth.client.mechanisms.feature_sums import feature_sums
from silosynth.common.datasets.records import Records
from silosynth.common.devices import fast_type, pick_device
from silosynth.common.networks.extractors import draw_network
from silosynth.common.queries import FeatureSums
from silosynth.common.schema import Schema
from silosynth.common.signals import Signals
from silosynth.server.recipes.base import Ask
from silosynth.server.recipes.feature_signals import faint_noise
from silosynth.server.synthesis.descent import Descent
from silosynth.server.synthesis.matching import Matcher

SCHEMA = Schema((28, 28, 1), 10)
RECORDS, BATCH, WIDTH = 1024, 64, 32
PER_CLASS, STEPS = 10, 4
QUERY = FeatureSums(
    schema=SCHEMA,
    noise_multiplier=1.0,
    first=0,
    signals=2,
    sampling_probability=1.0,
    network="convnet",
    width=WIDTH,
    seed=0,
    augmentation="color,crop,cutout,scale,rotate",
    projected=0,
    auxiliary="",
    clip=1.0,
    count_weight=0.15,
)


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    with one_thread():
        yield


@pytest.mark.benchmark
def test_sampling_beside_the_bare_networks() -> None:
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 256, (RECORDS, *SCHEMA.shape), dtype=np.uint8)
    records = Records(pixels, generator.integers(0, SCHEMA.classes, RECORDS), SCHEMA)
    network = draw_network("convnet", SCHEMA, WIDTH, 0).requires_grad_(False)
    images, drawn = torch.rand(BATCH, 1, 28, 28), QUERY.signals * RECORDS
    pick_device("cpu")

    @torch.inference_mode()
    def forward() -> None:
        for _ in range(drawn // BATCH):
            network.embed(images)

    bare = fastest_seconds(forward)
    whole = fastest_seconds(lambda: feature_sums(QUERY, records, bench(SeededEntropy())))
    print(f"\nsampling {drawn / whole:,.0f} images a CPU second, bare forward {drawn / bare:,.0f}: {bare / whole:.0%}")
    assert bare / whole >= 0.7


@pytest.mark.benchmark
def test_upload_beside_a_raw_copy(tmp_path: Path) -> None:
    """The answer is asked for twice: the second time the guard has it, and all there is to do is to carry it."""
    query = replace(QUERY, signals=300, sampling_probability=0.02, noise_multiplier=10.0)
    records = Records(np.zeros((20, *SCHEMA.shape), dtype=np.uint8), np.arange(20) % SCHEMA.classes, SCHEMA)
    with asked_guards(tmp_path, [records], mechanisms=[query.mechanism]) as (_, assembly):
        assembly.ask(Ask(query))
        begun = time.perf_counter()
        assembly.ask(Ask(query))
        carried = time.perf_counter() - begun
    size = 4 * query.layout().size
    raw = tmp_path / "raw"
    raw.write_bytes(bytes(size))
    begun = time.perf_counter()
    shutil.copyfile(raw, tmp_path / "copy")
    copied = time.perf_counter() - begun
    print(
        f"\n300 signals at width {WIDTH}: {size / 1e6:.1f} MB, from ledger to server in {carried:.2f} s, "
        f"{size / 1e6 / carried:.0f} MB/s; a copy of such a file takes {copied:.3f} s, ratio {carried / copied:.0f}"
    )


@pytest.mark.benchmark
def test_matching_beside_a_plain_loop() -> None:
    """The plain loop is the papers': a new network for each step, one class after the other, single precision."""
    sums, drawn = torch.zeros(10, 512), torch.full((10,), 100.0)
    start = faint_noise(SCHEMA, SCHEMA.classes * PER_CLASS, 0)
    plain = fastest_seconds(lambda: plain_steps(start, sums))
    device = pick_device("cpu")
    matcher = Matcher(Signals(QUERY, {}.__getitem__, device), 1.0, [PER_CLASS] * SCHEMA.classes, fast_type(device))
    descent = Descent(start, 0.1, 1000, 0.99)

    def steps() -> None:
        for step in range(STEPS):
            descent.step(matcher.loss(descent.records, step % QUERY.signals, sums, drawn))

    ours = fastest_seconds(steps)
    print(f"\n{STEPS / ours:.1f} steps a CPU second, plain loop {STEPS / plain:.1f}: {plain / ours:.1f} times as fast")
    assert ours < plain


def plain_steps(start: torch.Tensor, sums: torch.Tensor) -> None:
    records = start.clone().requires_grad_()
    optimizer = torch.optim.SGD([records], lr=1.0, momentum=0.5)
    for _ in range(STEPS):
        network = plain_network()
        loss = torch.zeros(())
        for label, members in enumerate(records.split(PER_CLASS)):
            features = network(members)
            clipped = features / features.detach().norm(dim=1, keepdim=True).clamp_min(1.0)
            loss = loss + (sums[label] - 100 * clipped.mean(dim=0)).square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def plain_network() -> nn.Module:
    layers: list[nn.Module] = []
    for inputs, padding in ((1, 3), (WIDTH, 1), (WIDTH, 1)):
        layers += [nn.Conv2d(inputs, WIDTH, 3, padding=padding), nn.GroupNorm(WIDTH, WIDTH), nn.ReLU(), nn.AvgPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten()).requires_grad_(False)
