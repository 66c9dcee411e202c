"""How images are synthesized, whatever the statistics."""

from __future__ import annotations

import math
from typing import Annotated

import torch
from pydantic import Field

from silosynth.common.config import Choices

Share = Annotated[float, Field(ge=0, le=1)]


class Settings(Choices):
    """Defaults are the SPS paper's, but for flips. What the paper leaves open: schedule, range penalty."""

    steps: int = Field(1000, ge=1, description="updates of every image")
    rate: float = Field(0.25, gt=0, description="Adam's first learning rate; it falls to zero along half a cosine")
    betas: tuple[Share, Share] = (0.5, 0.9)
    batch: int = Field(200, ge=1, description="images that are matched at once")
    batches_together: int = Field(1, ge=1, description="batches that take turns, so that a target may remember them")
    smallest_crop: float = Field(0.3, gt=0, le=1, description="share of the area; reached linearly, from whole images")
    flips: bool = Field(False, description="left and right may be exchanged: true of most photographs, not of digits")
    levels: int = Field(1, ge=1, le=8, description="of the pyramid that the optimizer moves; 1: plain pixels")
    range_penalty: float = Field(10.0, ge=0, description="of the mean square by which pixels leave [-1, 1]")

    def rate_at(self, step: int) -> float:
        return self.rate * 0.5 * (1 + math.cos(math.pi * step / self.steps))

    def smallest_crop_at(self, step: int) -> float:
        return 1 - (1 - self.smallest_crop) * step / max(1, self.steps - 1)


class Matching(Choices):
    """How the released moments are understood and weighed; defaults are the paper's, which does not tell the decay."""

    gamma: float = Field(2.0, ge=0, description="gamma_eig: jitter over the depth of the lowest eigenvalue")
    class_weight: float = Field(30.0, ge=0, description="lambda_C, of the classes beside the layers")
    decay: float = Field(0.8, ge=0, lt=1, description="share of the running synthetic moments that outlives a batch")


class Workshop(Choices):
    """Where it is done: decides nothing about the images but the last bits of their numbers."""

    devices: tuple[str, ...] = Field(("auto",), min_length=1, description="auto: all graphics cards, or the processor")
    autocast: bool = Field(False, description="bfloat16 inside networks, on graphics cards only")

    def places(self) -> list[torch.device]:
        """Each works on its own parts of the images."""
        cards = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
        named = [place for name in self.devices for place in ((cards or ["cpu"]) if name == "auto" else [name])]
        return [torch.device(name) for name in named]
