"""A step of DP-SGD beside Opacus: clipped gradients of the same records at the same weights, summed, on one thread."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from support.timing import one_thread, rivals_seconds

from silosynth.client.mechanisms.record_gradients import clipped_sum, per_record_gradients
from silosynth.common.networks.extractors import draw_network
from silosynth.common.networks.weights import flat_weights
from silosynth.common.queries.base import fine_grid
from silosynth.common.schema import Schema

SCHEMA = Schema((28, 28, 1), 10)
BATCH, WIDTH, CLIP = 120, 32, 1.0  # as many as our batches hold beside their blanks
LARGEST_DIFFERENCE = BATCH * 2e-5  # of single precision and our grid, over all records


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    with one_thread():
        yield


@pytest.mark.benchmark
@pytest.mark.filterwarnings("ignore")  # Opacus': of hooks, and of its own random numbers
def test_gradients_beside_opacus() -> None:
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    network = draw_network("convnet", SCHEMA, WIDTH, 0)
    weights, gradients = flat_weights(network), per_record_gradients(network)
    images, labels = torch.randn(BATCH, 1, 28, 28), torch.randint(SCHEMA.classes, (BATCH,))
    hooked = GradSampleModule(draw_network("convnet", SCHEMA, WIDTH, 0))
    optimizer = DPOptimizer(
        torch.optim.SGD(hooked.parameters(), 0.1), noise_multiplier=0.0, max_grad_norm=CLIP, expected_batch_size=1
    )

    def theirs() -> None:
        optimizer.zero_grad()
        F.cross_entropy(hooked(images), labels).backward()  # type: ignore[no-untyped-call]
        optimizer.pre_step()

    def ours() -> np.ndarray:
        return clipped_sum(gradients, weights, images, labels, CLIP)

    seconds, their_seconds = rivals_seconds(ours, theirs)
    found = torch.cat([parameter.grad.flatten() for parameter in hooked.parameters()])
    assert np.abs(ours() * fine_grid(CLIP, len(weights)) - found.numpy()).max() < LARGEST_DIFFERENCE
    rates = f"{BATCH / seconds:,.0f} records a CPU second, Opacus {BATCH / their_seconds:,.0f}"
    print(f"\n{rates}: {their_seconds / seconds:.2f} times as fast")
