"""How fast public images are drawn, and what reading the taps costs beside the bare network."""

import time
from collections.abc import Callable

import pytest
import torch

from silosynth.common.backbones import backbone
from silosynth.common.procedural import procedural_batches

BATCH = 256


def images_per_second(work: Callable[[], object], rounds: int = 8) -> float:
    work()
    started = time.process_time()
    for _ in range(rounds):
        work()
    return BATCH * rounds / (time.process_time() - started)


@pytest.mark.benchmark
@pytest.mark.parametrize("channels", [1, 3])
def test_drawing_procedural_images(channels: int) -> None:
    stream = procedural_batches(0, BATCH, channels, 32)
    print(f"\n{channels} channels: {images_per_second(lambda: next(stream)):,.0f} procedural images a CPU second")


@pytest.mark.benchmark
@pytest.mark.parametrize("name", ["residual-16", "residual-24"])
def test_taps_beside_the_bare_network(name: str) -> None:
    network = backbone(name, 1)
    images = torch.rand(BATCH, 1, 28, 28)
    asking = images.clone().requires_grad_(True)

    def forward_and_back() -> None:
        loss = torch.stack([tap.square().mean() for tap in network.forward_taps(asking)]).sum()
        torch.autograd.grad(loss, asking)

    with torch.no_grad():
        bare = images_per_second(lambda: network.network(images))
        taps = images_per_second(lambda: network.forward_taps(images))
    back = images_per_second(forward_and_back)
    print(f"\n{name}, 28x28, images a CPU second: bare forward {bare:,.0f}, with taps {taps:,.0f} ({taps / bare:.0%}),")
    print(f"forward with taps and gradient to the images {back:,.0f}")
