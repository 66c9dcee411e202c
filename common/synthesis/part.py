"""One part of a synthetic set, from start to finish on one device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import torch
from pydantic import JsonValue
from torch import Tensor, nn

from silosynth.common.backbones.checkpoint import load_checkpoint, save_checkpoint
from silosynth.common.procedural.dice import Dice
from silosynth.common.synthesis.augmentation import augmented
from silosynth.common.synthesis.parametrization import image_of, pyramid
from silosynth.common.synthesis.settings import Settings
from silosynth.common.synthesis.target import Target

REPORT_EVERY = 10
CHECKPOINT_EVERY = 50


@dataclass(frozen=True)
class Part:
    seeds: tuple[int, int]  # of the job, and the part's number
    start: Tensor
    labels: Tensor
    identity: dict[str, JsonValue]
    checkpoint: Path | None

    @property
    def number(self) -> int:
        return self.seeds[1]


Tell = Callable[[Part, int, float, Callable[[], Tensor]], None]
"""(part, steps done, loss, its images when asked for)"""


class _Canvas(nn.Module):
    """The batches' pyramids, and the target's memory beside them, so that one checkpoint holds both."""

    def __init__(self, batches: list[Tensor], levels: int, memory: dict[str, Tensor]) -> None:
        super().__init__()
        self.batches = nn.ModuleList(nn.ParameterList(pyramid(batch, levels)) for batch in batches)
        self.memory = nn.Module()
        for name, tensor in memory.items():
            self.memory.register_buffer(name, tensor)

    def images(self, number: int) -> Tensor:
        return image_of(list(self.batches[number].parameters()))

    def all_images(self) -> Tensor:
        """As they would be if this were the end."""
        return torch.cat([self.images(number).detach().clamp(-1, 1).cpu() for number in range(len(self.batches))])


def make(
    part: Part, target: Target, settings: Settings, device: torch.device, tell: Tell, stopped: Event
) -> Tensor | None:
    """The finished images, on the CPU; nothing if the job was stopped meanwhile."""
    count = -(-len(part.labels) // settings.batch)
    labels = part.labels.to(device).tensor_split(count)
    canvas = _Canvas(list(part.start.to(device, torch.float32).tensor_split(count)), settings.levels, target.memory())
    adam = torch.optim.Adam(canvas.parameters(), lr=settings.rate, betas=settings.betas)
    first = 0 if part.checkpoint is None else load_checkpoint(part.checkpoint, canvas, adam, part.identity)
    for step in range(first, settings.steps):
        if stopped.is_set():
            return None
        for group in adam.param_groups:
            group["lr"] = settings.rate_at(step)
        for number in range(count):
            dice = Dice(*part.seeds, step, number, device=device)
            loss = _loss(target, canvas.images(number), labels[number], settings, step, dice)
            adam.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            adam.step()  # moves only the batch that has gradients
        if part.checkpoint is not None and ((step + 1) % CHECKPOINT_EVERY == 0 or step + 1 == settings.steps):
            save_checkpoint(part.checkpoint, canvas, adam, part.identity, step + 1)
        if (step + 1) % REPORT_EVERY == 0 or step + 1 == settings.steps:
            tell(part, step + 1, loss.item(), canvas.all_images)
    return canvas.all_images()


def _loss(target: Target, images: Tensor, labels: Tensor, settings: Settings, step: int, dice: Dice) -> Tensor:
    seen = augmented(images, settings.smallest_crop_at(step), settings.flips, dice)
    outside = (images.abs() - 1).clamp(min=0).square().mean()
    return target.loss(seen, labels) + settings.range_penalty * outside
