"""The target of SPS: Gaussians of a public network's activations, of all records at every layer and of each class at
the last ones.

loss = sum over layers of KL(target || synthetic) + lambda_C * the same over classes and their layers. Images are
clipped as the silos clipped their records: since clipping binds for nearly all of them, unclipped ones would match
something else. Of the stages of SPS+ each batch is matched with one, drawn anew each time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor

from silosynth.common.backbones import Backbone
from silosynth.common.procedural.dice import Dice
from silosynth.common.statistics import MomentStatistics
from silosynth.common.synthesis.paper_stage import Stage
from silosynth.common.synthesis.running import RunningMoments
from silosynth.common.synthesis.settings import Matching
from silosynth.common.synthesis.stage_release import Release
from silosynth.common.synthesis.target import Target
from silosynth.common.synthesis.working_copy import working_copy


class PaperTarget(Target):
    def __init__(self, backbone: Backbone, stages: Sequence[Stage], matching: Matching) -> None:
        self._backbone, self._stages, self._matching = backbone, stages, matching
        self._statistics = [MomentStatistics(stage.query, backbone, stage.center) for stage in stages]
        self._layers = [RunningMoments(stage.layers, matching.decay) for stage in stages]
        self._classes = [RunningMoments(stage.classes, matching.decay) for stage in stages]
        self._batches = torch.zeros((), dtype=torch.int64)

    @classmethod
    def of(cls, backbone: Backbone, releases: Sequence[Release], matching: Matching) -> Self:
        return cls(backbone, [Stage.of(release, backbone, matching.gamma) for release in releases], matching)

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        number = int(Dice(int(self._batches)).integers(len(self._stages)))
        self._batches += 1
        stage = self._stages[number]
        found, present = stage.measured(self._statistics[number], images, labels)
        every = torch.ones_like(stage.layers.jitter)
        of_layers = stage.layers.divergence(*self._layers[number].updated(found.means, found.seconds, every))
        of_classes = stage.classes.divergence(
            *self._classes[number].updated(found.class_means, found.class_seconds, present)
        )
        return of_layers.sum() + self._matching.class_weight * (stage.class_weights * present) @ of_classes.sum(1)

    def on(self, device: torch.device, autocast: bool) -> Self:
        backbone = working_copy(self._backbone, device, autocast)
        return type(self)(backbone, [stage.to(device) for stage in self._stages], self._matching)

    @property
    def identity(self) -> str:
        digest = hashlib.sha256(f"{self._backbone.digest} {self._matching.digest()}".encode())
        for stage in self._stages:
            digest.update(stage.identity)
        return digest.hexdigest()

    def memory(self) -> dict[str, Tensor]:
        named = {"batches": self._batches}
        for number, (layers, classes) in enumerate(zip(self._layers, self._classes, strict=True)):
            named |= layers.memory(f"layers{number}") | classes.memory(f"classes{number}")
        return named
