"""Training a model on records and asking it about others. The same seed gives the same model on the same machine."""

from __future__ import annotations

from functools import partial
from itertools import islice

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from silosynth.common.augmentation import augment
from silosynth.server.evaluation.examples import Examples
from silosynth.server.evaluation.finetuning import TunedBackbone
from silosynth.server.evaluation.protocols import Protocol

Probabilities = npt.NDArray[np.float32]

_TEST_BATCH = 2048
_SEEDS = 1 << 62


def train(
    model: nn.Module, examples: Examples, protocol: Protocol, *, steps: int, augmentation: tuple[str, ...], seed: int
) -> None:
    """A public backbone gets a head that fits first: from a random one, wrong gradients would reach all its layers."""
    rate = protocol.learning_rate
    if isinstance(model, TunedBackbone):
        model.fit_head(examples)
        rate = protocol.tuning_rate
    weights: list[Tensor] = [weight for weight in model.parameters() if weight.requires_grad]
    base = protocol.optimizer(weights, rate)
    schedule = protocol.schedule(base, steps)
    optimizer = protocol.sharpness(base) if protocol.sharpness else base
    dice = torch.Generator().manual_seed(seed)
    for rows in islice(protocol.batches(len(examples), dice), steps):
        inputs = _perturbed(examples.inputs(rows), protocol.noise, augmentation, dice)
        optimizer.step(partial(_loss, model, base, inputs, examples.targets[rows]))
        schedule.step()
    model.eval()


@torch.no_grad()
def predict(model: nn.Module, examples: Examples) -> Probabilities:
    parts = [model(inputs).softmax(dim=1) for inputs in examples.in_order(_TEST_BATCH)]
    probabilities: Probabilities = torch.cat(parts).cpu().numpy()
    return probabilities


def _perturbed(inputs: Tensor, noise: float, augmentation: tuple[str, ...], dice: torch.Generator) -> Tensor:
    """Noise of a strength of its own for each record, then one augmentation for all."""
    if noise:
        strength = noise * torch.rand(len(inputs), *[1] * (inputs.ndim - 1), generator=dice)
        inputs = inputs + (strength * torch.randn(inputs.shape, generator=dice)).to(inputs.device)
    if augmentation:
        inputs = augment(inputs, augmentation, int(torch.randint(_SEEDS, (), generator=dice)))
    return inputs


def _loss(model: nn.Module, optimizer: torch.optim.Optimizer, inputs: Tensor, targets: Tensor) -> float:
    """Leaves the gradients where the optimizer looks for them."""
    optimizer.zero_grad()
    loss = functional.cross_entropy(model(inputs), targets)
    loss.backward()  # type: ignore[no-untyped-call]
    return float(loss.detach())
