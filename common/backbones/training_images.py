"""Public images to train a backbone on: drawn by procedure, or read from a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import torch
import torch.nn.functional as F
from pydantic import JsonValue
from torch import Tensor

from silosynth.common.datasets import load
from silosynth.common.procedural import VERSION, class_count, procedural_batches
from silosynth.common.procedural.dice import Dice

Batch = tuple[Tensor, Tensor]


class TrainingImages(Protocol):
    """Batch number n is the same whenever it is asked for, so that training can stop and go on."""

    @property
    def classes(self) -> int: ...

    @property
    def description(self) -> dict[str, JsonValue]:
        """What belongs into the recipe of a backbone trained on them."""

    def batch(self, number: int, size: int) -> Batch: ...


class ProceduralImages:
    def __init__(self, seed: int, channels: int, side: int, device: torch.device) -> None:
        self._seed, self._channels, self._side, self._device = seed, channels, side, device
        self.classes = class_count()
        self.description: dict[str, JsonValue] = {"images": "procedural", "images_version": VERSION}

    def batch(self, number: int, size: int) -> Batch:
        return next(procedural_batches(self._seed, size, self._channels, self._side, self._device, start=number))


class FolderImages:
    """A folder of class folders, with random crops and brightness, and mirrored where mirror images are as likely."""

    def __init__(self, folder: Path, seed: int, channels: int, side: int, device: torch.device, mirrored: bool) -> None:
        records = load(folder, size=(side, side), colour=channels == 3)
        self._pixels = torch.from_numpy(records.features).permute(0, 3, 1, 2)
        self._labels = torch.from_numpy(records.labels)
        self._seed, self._device, self._mirrored = seed, device, mirrored
        self.classes = records.schema.classes
        self.description: dict[str, JsonValue] = {
            "images": "folder",
            "images_count": len(records),
            "images_mirrored": mirrored,
        }

    def batch(self, number: int, size: int) -> Batch:
        dice = Dice(self._seed, number)
        rows = dice.integers(len(self._labels), size)
        pixels = self._pixels[rows].to(self._device).float() / 127.5 - 1
        return _augmented(pixels, dice, self._mirrored), self._labels[rows].to(self._device)


def _augmented(images: Tensor, dice: Dice, mirrored: bool) -> Tensor:
    count = len(images)
    scale = dice.uniform(count, 2, low=0.6, high=1.0)
    shift = dice.uniform(count, 2, low=-1.0) * (1 - scale)
    if mirrored:
        scale[:, 0] *= 1 - 2 * dice.chance(0.5, count).float()
    crops = torch.cat((torch.diag_embed(scale), shift[..., None]), -1).to(images.device)
    grid = F.affine_grid(crops, list(images.shape), align_corners=False)
    cropped = F.grid_sample(images, grid, padding_mode="reflection", align_corners=False)
    contrast = dice.uniform(count, 1, 1, 1, low=0.7, high=1.3).to(images.device)
    brightness = dice.uniform(count, 1, 1, 1, low=-0.2, high=0.2).to(images.device)
    return (cropped * contrast + brightness).clamp(-1, 1)
