"""A ConvNet that silos and server train together: DP-SGD whose every step is a question to all silos."""

from __future__ import annotations

import hashlib
from collections.abc import Generator
from dataclasses import dataclass

import torch

from silosynth.common.accounting import calibrate
from silosynth.common.events import SampledGaussian
from silosynth.common.networks.extractors import Network
from silosynth.common.networks.weights import encode_networks, flat_weights, with_weights
from silosynth.common.queries import GradientSums
from silosynth.server.recipes.base import Ask, Step, Summed, Task
from silosynth.server.synthesis.made_once import made_once


@dataclass(frozen=True)
class FederatedDescent:
    """How it is done. Steps are Adam's, which does not care how many records a gradient is of."""

    width: int
    steps: int
    sampling_probability: float
    clip: float
    learning_rate: float

    def noise_multiplier(self, epsilon: float, delta: float) -> float:
        """Of every step, where all of the budget is spent on them."""
        rate, steps = self.sampling_probability, self.steps
        return calibrate(lambda noise: [SampledGaussian(noise, rate, steps)], epsilon, delta)

    def query(self, task: Task, noise_multiplier: float, weights: str) -> GradientSums:
        return GradientSums(
            schema=task.schema,
            noise_multiplier=noise_multiplier,
            width=self.width,
            weights=weights,
            sampling_probability=self.sampling_probability,
            clip=self.clip,
        )

    def train(
        self, task: Task, network: Network, noise_multiplier: float, what: str
    ) -> Generator[Step, Summed, Network]:
        """The weights after each step are kept: the next question is about them."""
        optimizer, checkpoints = torch.optim.Adam(network.parameters(), self.learning_rate), task.workplace.checkpoints
        for step in range(self.steps):
            before = flat_weights(network)
            digest, content = weights_artifact([network])
            summed = yield Ask(self.query(task, noise_multiplier, digest), {digest: content})
            gradient = torch.from_numpy(summed.blocks["gradient"]).float()
            for weights, part in _parts(network, gradient):
                weights.grad = part
            optimizer.step()
            after = made_once(checkpoints, (before, gradient, self), lambda: {"weights": flat_weights(network)})
            with_weights(network, after["weights"])
            task.workplace.report((step + 1) / self.steps, float(gradient.norm()), what=what)
        return network


def weights_artifact(networks: list[Network]) -> tuple[str, bytes]:
    content = encode_networks(networks)
    return hashlib.sha256(content).hexdigest(), content


def _parts(network: Network, gradient: torch.Tensor) -> list[tuple[torch.nn.Parameter, torch.Tensor]]:
    weights = list(network.parameters())
    parts = torch.split(gradient, [part.numel() for part in weights])
    return [(part, values.view_as(part)) for part, values in zip(weights, parts, strict=True)]
