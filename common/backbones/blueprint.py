"""Everything about a backbone but its numbers: which network, for which images, how they are prepared."""

from __future__ import annotations

import json
from typing import Annotated, Literal, Self

import torch
from pydantic import Field, FiniteFloat, model_validator
from torch import nn

from silosynth.common.backbones.registry import ARCHITECTURES
from silosynth.common.config import Section


class Blueprint(Section):
    """Images come in [-1, 1]; the network sees (image - mean) / std, resized to `side` if that is given."""

    architecture: str
    channels: Literal[1, 3]
    classes: Annotated[int, Field(strict=True, ge=1, le=1 << 15)]
    mean: tuple[FiniteFloat, ...]
    std: tuple[Annotated[FiniteFloat, Field(ge=1e-3, le=1e3)], ...]
    side: Annotated[int, Field(strict=True, ge=1, le=256)] | None = None

    @model_validator(mode="after")
    def _can_be_built(self) -> Self:
        if self.architecture not in ARCHITECTURES:
            raise ValueError(f"there is no network {self.architecture!r}: choose one of {', '.join(ARCHITECTURES)}")
        if self.channels not in ARCHITECTURES[self.architecture].channels:
            raise ValueError(f"{self.architecture} takes colour images only: ask for 3 channels")
        if not len(self.mean) == len(self.std) == self.channels:
            raise ValueError(f"mean and std must have {self.channels} values")
        return self

    def canonical(self) -> str:
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))

    def network(self, seed: int = 0) -> nn.Module:
        """With random weights: the same for the same seed, whatever was drawn before."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return ARCHITECTURES[self.architecture].build(self.channels, self.classes)


def stored_tensors(network: nn.Module) -> dict[str, torch.Tensor]:
    """The network's state without BatchNorm's batch counters, which frozen statistics do not use."""
    return {name: tensor for name, tensor in network.state_dict().items() if tensor.is_floating_point()}
