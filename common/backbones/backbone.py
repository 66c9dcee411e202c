"""A frozen public network whose activations before each BatchNorm can be read off."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from threading import Lock
from typing import Self

import torch
import torch.nn.functional as F
from pydantic import JsonValue
from torch import Tensor, nn

from silosynth.common.backbones.blueprint import Blueprint, stored_tensors
from silosynth.common.errors import DataError

Recipe = Mapping[str, JsonValue]
"""How a backbone came to be; for people, and no part of its identity."""


class Backbone:
    """Frozen: BatchNorm uses its stored statistics, parameters ask for no gradient. To fine-tune, copy `network`."""

    def __init__(self, blueprint: Blueprint, network: nn.Module, recipe: Recipe) -> None:
        self.blueprint = blueprint
        self.network = network.eval().requires_grad_(False)
        self.recipe = recipe
        self._mean = torch.tensor(blueprint.mean)[:, None, None]
        self._std = torch.tensor(blueprint.std)[:, None, None]
        self._tapping = Lock()

    def forward_taps(self, images: Tensor) -> list[Tensor]:
        """What enters each BatchNorm, in order, for images in [-1, 1] of shape (batch, channels, height, width)."""
        with self._tapping, _tapped(self.network) as taps:
            self.network(self._prepared(images))
        return taps

    def logits(self, images: Tensor) -> Tensor:
        """Scores of the classes it was trained on."""
        scores: Tensor = self.network(self._prepared(images))
        return scores

    def tap_shapes(self, height: int, width: int) -> list[tuple[int, ...]]:
        """(channels, height, width) of each tap, found by looking at an empty image."""
        image = torch.zeros(1, self.blueprint.channels, height, width, device=self.device)
        return [tuple(tap.shape[1:]) for tap in self.forward_taps(image)]

    def to(self, device: torch.device | str) -> Self:
        self.network.to(device)
        self._mean, self._std = self._mean.to(device), self._std.to(device)
        return self

    @property
    def device(self) -> torch.device:
        return self._mean.device

    @cached_property
    def digest(self) -> str:
        """SHA-256 of blueprint and numbers: the same whatever file they lie in."""
        tensors = dict(sorted(stored_tensors(self.network).items()))
        shapes = [[name, list(tensor.shape)] for name, tensor in tensors.items()]
        digest = hashlib.sha256(json.dumps([self.blueprint.canonical(), shapes]).encode())
        for tensor in tensors.values():
            digest.update(tensor.cpu().contiguous().numpy().astype("<f4", copy=False).data)
        return digest.hexdigest()

    def _prepared(self, images: Tensor) -> Tensor:
        if images.ndim != 4 or images.shape[1] not in (1, self.blueprint.channels):
            raise DataError(
                f"images have shape {tuple(images.shape)}, but this backbone takes {self.blueprint.channels} channels: "
                "use one made for such images"
            )
        # A grey image is a colour image whose channels agree: broadcasting repeats it.
        scaled = (images - self._mean) / self._std
        side = self.blueprint.side
        if side is None or scaled.shape[2:] == (side, side):
            return scaled
        return F.interpolate(scaled, size=(side, side), mode="bilinear", antialias=True, align_corners=False)


@contextmanager
def _tapped(network: nn.Module) -> Iterator[list[Tensor]]:
    taps: list[Tensor] = []
    hooks = [
        module.register_forward_pre_hook(lambda _, inputs: taps.append(inputs[0]))
        for module in network.modules()
        if isinstance(module, nn.BatchNorm2d)
    ]
    try:
        yield taps
    finally:
        for hook in hooks:
            hook.remove()
