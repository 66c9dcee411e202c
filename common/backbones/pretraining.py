"""Training a backbone to tell public images apart. Stops and goes on without a trace in the result.

The same plan gives the same digest on the same machine; other processors or versions of torch add in another order,
and the last bits, hence the digest, may differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from pydantic import Field, JsonValue
from torch import Tensor, nn

from silosynth.common.backbones.backbone import Backbone
from silosynth.common.backbones.checkpoint import load_checkpoint, save_checkpoint
from silosynth.common.backbones.sources import backbone
from silosynth.common.backbones.training_images import Batch, TrainingImages
from silosynth.common.config import Section
from silosynth.common.procedural.dice import Dice

SHRUNK_SHARE = 0.5
SMALLEST_SIDE = 8
REPORT_EVERY = 20
CHECKPOINT_EVERY = 200

Report = Callable[[int, float, float], None]
"""(steps done, loss, accuracy), the latter two on the batch just seen."""


class PretrainingPlan(Section):
    """All that decides a backbone's numbers, beside the images."""

    architecture: str = "residual-24"
    channels: Literal[1, 3] = 1
    side: Annotated[int, Field(ge=SMALLEST_SIDE, le=256)] = 32
    steps: Annotated[int, Field(ge=1)] = 6000
    batch: Annotated[int, Field(ge=2)] = 128
    learning_rate: Annotated[float, Field(gt=0)] = 3e-3
    weight_decay: Annotated[float, Field(ge=0)] = 0.02
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.1
    seed: Annotated[int, Field(ge=0)] = 0

    def rate(self, step: int) -> float:
        """A short climb, then half a cosine down to zero."""
        climb = min(1.0, (step + 1) / min(100, 1 + self.steps // 10))
        return self.learning_rate * climb * 0.5 * (1 + math.cos(math.pi * step / self.steps))


def pretrain(
    plan: PretrainingPlan, images: TrainingImages, device: torch.device, checkpoint: Path, report: Report
) -> Backbone:
    """Goes on from the checkpoint if there is one, and keeps it up to date until the backbone is finished."""
    untrained = backbone(plan.architecture, plan.channels, classes=images.classes, seed=plan.seed)
    network = untrained.network.to(device).requires_grad_(True)
    optimizer = _optimizer(network, plan)
    recipe = _recipe(plan, images)
    for step in range(load_checkpoint(checkpoint, network, optimizer, recipe), plan.steps):
        loss, correct = _step(network, optimizer, _shrunk(images.batch(step, plan.batch), plan, step), plan, step)
        if (step + 1) % REPORT_EVERY == 0:
            report(step + 1, loss.item(), correct.item())
        if (step + 1) % CHECKPOINT_EVERY == 0:
            save_checkpoint(checkpoint, network, optimizer, recipe, step + 1)
    return Backbone(untrained.blueprint, network.cpu(), recipe)


def _optimizer(network: nn.Module, plan: PretrainingPlan) -> torch.optim.AdamW:
    """Weights decay; biases and BatchNorm's scales do not."""
    weights = [parameter for parameter in network.parameters() if parameter.ndim > 1]
    others = [parameter for parameter in network.parameters() if parameter.ndim <= 1]
    groups = [{"params": weights, "weight_decay": plan.weight_decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=plan.learning_rate)


def _step(
    network: nn.Module, optimizer: torch.optim.AdamW, batch: Batch, plan: PretrainingPlan, step: int
) -> tuple[Tensor, Tensor]:
    images, labels = batch
    for group in optimizer.param_groups:
        group["lr"] = plan.rate(step)
    network.train()
    with torch.autocast(images.device.type, enabled=images.device.type == "cuda", dtype=torch.bfloat16):
        logits = network(images)
        loss = F.cross_entropy(logits, labels, label_smoothing=plan.label_smoothing)
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return loss.detach(), (logits.argmax(1) == labels).float().mean()


def _shrunk(batch: Batch, plan: PretrainingPlan, step: int) -> Batch:
    """Some batches smaller than the plan's side: the backbone shall serve small images too."""
    images, labels = batch
    dice = Dice(plan.seed, step, 1)
    if plan.side == SMALLEST_SIDE or not dice.chance(SHRUNK_SHARE):
        return batch
    side = SMALLEST_SIDE + int(dice.integers(plan.side - SMALLEST_SIDE))
    shrunk = F.interpolate(images, size=(side, side), mode="bilinear", antialias=True, align_corners=False)
    return shrunk, labels


def _recipe(plan: PretrainingPlan, images: TrainingImages) -> dict[str, JsonValue]:
    versions: dict[str, JsonValue] = {"silosynth": version("silosynth"), "torch": version("torch")}
    return plan.model_dump(mode="json") | images.description | versions
