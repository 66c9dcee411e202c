"""What spatial SPS costs beside the bare network: at a silo, and for each step of the synthesis."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import torch
from support.entropies import ScriptedEntropy
from support.guards import bench
from support.moments import SHELF, shelve
from test_moments_speed import SCHEMA, images_per_second, some_records

from silosynth.client.mechanisms.sufficient_statistics import sufficient_statistics
from silosynth.common.backbones import Backbone, encode_backbone, load_backbone
from silosynth.common.synthesis import Sketch, synthesize
from silosynth.common.synthesis.spatial_model import SpatialModel
from silosynth.common.synthesis.spatial_sps import spatial_queries
from silosynth.common.synthesis.spatial_target import SpatialTarget
from silosynth.common.synthesis.sps import Job
from silosynth.common.synthesis.sps_parameters import SpsParameters
from silosynth.common.synthesis.stage_release import Release

BATCH, STEPS = 200, 20


def quiet(share: float, loss: float, sketch: Sketch) -> None:
    pass


def release(network: Backbone) -> Release:
    """Of one stage."""
    (query,) = spatial_queries(Job(SCHEMA, 1.0, 0, quiet), SpsParameters(stages=1), network)
    shelve(encode_backbone(network))
    values = sufficient_statistics(query, some_records(2048), bench(ScriptedEntropy(), artifacts=SHELF))
    return Release(query, values * query.grid(), 1.0)


@torch.inference_mode()
def forward(network: Backbone, images: torch.Tensor, times: int) -> None:
    for _ in range(times):
        network.logits(images)


@pytest.mark.benchmark
def test_summarizing_beside_the_bare_network() -> None:
    torch.set_num_threads(1)
    network, records = load_backbone("procedural-grey"), some_records(2048)
    query = release(network).query
    planes, pixels = torch.rand(256, 1, 28, 28), torch.rand(256, 28, 28, 1).permute(0, 3, 1, 2)
    whole = images_per_second(lambda: sufficient_statistics(query, records, bench(ScriptedEntropy(), artifacts=SHELF)))
    usual, fastest = (images_per_second(lambda shown=shown: forward(network, shown, 8)) for shown in (planes, pixels))
    print(f"\nspatial statistics, {query.layout().size:,} values: {whole:,.0f} images a CPU second; bare", end=" ")
    print(f"forward by planes {usual:,.0f} ({whole / usual:.0%}), by pixels {fastest:,.0f} ({whole / fastest:.0%})")


def seconds_a_step(work: Callable[[], object], rounds: int = 3) -> float:
    times = []
    for _ in range(rounds):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return min(times) / STEPS


def bare_steps(network: Backbone, images: torch.Tensor) -> None:
    for _ in range(STEPS):
        network.logits(images).sum().backward()


@pytest.mark.benchmark
def test_a_step_of_the_synthesis_beside_the_bare_gradient() -> None:
    torch.set_num_threads(1)
    network = load_backbone("procedural-grey")
    target = SpatialTarget(network, SpatialModel.of(release(network)), 0.0)
    labels, start = torch.arange(BATCH) % 10, torch.rand(BATCH, 1, 28, 28)
    settings = SpsParameters(steps=STEPS).settings(0)
    whole = seconds_a_step(lambda: synthesize(target, start, labels, settings, quiet))
    loss = seconds_a_step(lambda: [target.loss(start.requires_grad_(), labels).backward() for _ in range(STEPS)])
    bare = seconds_a_step(lambda: bare_steps(network, start.requires_grad_()))
    print(
        f"\na step of {BATCH} images: {1e3 * whole:.0f} ms, {whole / bare:.2f} times the bare forward pass and gradient"
    )
    print(f"({1e3 * bare:.0f} ms); the target's loss alone takes {loss / bare:.2f} times that")
