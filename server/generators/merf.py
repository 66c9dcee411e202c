"""DP-MERF: a generator whose records have, class by class, the mean embedding that the silos released.

One upload: per class, the sum of the records' features, none longer than 1, and their number. The features are random
Fourier features of the values (Harder et al., "DP-MERF"), or what a public network sees in images, which keeps shapes
(DP-MEPF). The noisy means are matched as long as one likes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from silosynth.common.backbones import Backbone, backbone_for, encode_backbone
from silosynth.common.config import Choices
from silosynth.common.devices import pick_device
from silosynth.common.errors import ConfigError
from silosynth.common.events import Event, SampledGaussian
from silosynth.common.procedural.dice import Dice
from silosynth.common.queries import FeatureSums, SufficientStatistics
from silosynth.common.signals import Signals
from silosynth.common.statistics.spatial import SpatialFeatures
from silosynth.server.generators.base import Pool, PoolSteps
from silosynth.server.recipes.base import Array, Ask, Summed, Task
from silosynth.server.recipes.outlook import Crowd, Outlook, noise_of_class_means
from silosynth.server.synthesis.conditional_generator import ConditionalGenerator
from silosynth.server.synthesis.denoise import denoised_counts
from silosynth.server.synthesis.generator_networks import tensors_of
from silosynth.server.synthesis.made_once import made_once, trained_once

_COUNT_WEIGHT = 0.125  # kappa: a power of two, as sufficient statistics want it
_SMALLEST_RATE = 0.01  # of the first, at the end
_BEARABLE = 4.0  # measured on digits: accuracy 92 % without noise, 87 % at 1.5, 75 % at 2.8, 55 % at 3.9, 44 % at 5.3


class MerfParameters(Choices):
    """The paper: embedding = "fourier", features = 10_000, length_scale = 0.73 (MNIST)."""

    embedding: Literal["fourier", "backbone"] = Field(
        "fourier", description="fourier: of the values; backbone: of what a public network sees in images"
    )
    features: int = Field(2000, ge=2, le=1 << 14, multiple_of=2, description="random Fourier features")
    length_scale: float = Field(0.73, gt=0, description="distance, a value, at which records are unlike (fourier)")
    backbone: str | None = Field(None, description="name or file; default: the shipped one for grey or colour images")
    generator_steps: int = Field(2000, ge=1, le=1_000_000)
    generator_batch: int = Field(20, ge=1, le=10_000, description="records of each class in a step")
    generator_rate: float = Field(3e-3, gt=0, description="of Adam at first; falls with the steps")


@dataclass(frozen=True)
class Embedding:
    """What is asked for, with which files, and how the same is computed of synthetic records, with gradients."""

    query: FeatureSums | SufficientStatistics
    artifacts: dict[str, bytes]
    embed: Callable[[Tensor], Tensor]
    one_record: float  # in the counts

    def means(self, summed: Summed) -> Array:
        classes = self.query.schema.classes
        counts = summed.blocks["counts"].reshape(classes) / self.one_record
        sizes = denoised_counts(counts, summed.noise_variance / self.one_record**2)
        return summed.blocks["sums"].reshape(classes, -1) / sizes[:, None]


class Merf:
    def __init__(self, parameters: MerfParameters) -> None:
        self._chosen = parameters

    def events(self, noise_multiplier: float) -> list[Event]:
        return [SampledGaussian(noise_multiplier)]

    def outlook(self, task: Task, noise_multiplier: float, crowd: Crowd) -> Outlook:
        query, chosen = self._embedding(task, noise_multiplier).query, self._chosen
        noise = noise_of_class_means(query, crowd, dimension=query.layout().size // task.schema.classes, bound=1.0)
        made = chosen.generator_steps * chosen.generator_batch * task.schema.classes
        return Outlook([query], noise, _BEARABLE, crowd.records, made)

    def steps(self, task: Task, noise_multiplier: float, per_class: int) -> PoolSteps:
        embedding = self._embedding(task, noise_multiplier)
        summed = yield Ask(embedding.query, embedding.artifacts)
        generator = self._trained(task, embedding, torch.from_numpy(embedding.means(summed)).float())
        weights = generator.network.state_dict().values()
        made = made_once(
            task.workplace.checkpoints,
            (*weights, per_class, task.seed),
            lambda: dict(zip(("records", "labels"), generator.sample(per_class, Dice(task.seed, 1)), strict=True)),
        )
        return Pool(made["records"], made["labels"], {"generator": tensors_of(generator.network)})

    def _trained(self, task: Task, embedding: Embedding, wanted: Tensor) -> ConditionalGenerator:
        generator = ConditionalGenerator(task.schema, task.seed)
        trained_once(
            generator.network,
            task.workplace.checkpoints,
            (wanted, embedding.query, self._chosen),
            lambda: self._train(generator, task, embedding, wanted),
        )
        return generator

    def _train(self, generator: ConditionalGenerator, task: Task, embedding: Embedding, wanted: Tensor) -> None:
        """As long as it is told; the rate falls, so that the generator settles."""
        chosen, dice = self._chosen, Dice(task.seed, 0)
        optimizer = torch.optim.Adam(generator.network.parameters(), chosen.generator_rate)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(
            optimizer, chosen.generator_steps, _SMALLEST_RATE * chosen.generator_rate
        )
        for step in range(1, chosen.generator_steps + 1):
            records, _ = generator.draw(chosen.generator_batch, dice)
            found = embedding.embed(records).reshape(task.schema.classes, chosen.generator_batch, -1).mean(1)
            loss = (wanted - found).square().sum()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
            task.workplace.report(step / chosen.generator_steps, float(loss.detach()), what="training a generator")

    def _embedding(self, task: Task, noise_multiplier: float) -> Embedding:
        if self._chosen.embedding == "fourier":
            return self._fourier(task, noise_multiplier)
        if not task.schema.is_image:
            raise ConfigError('embedding = "backbone" is for images, these records are rows: set "fourier"')
        return _seen(backbone_for(task.schema, self._chosen.backbone), task, noise_multiplier)

    def _fourier(self, task: Task, noise_multiplier: float) -> Embedding:
        query = FeatureSums(
            schema=task.schema,
            noise_multiplier=noise_multiplier,
            first=0,
            signals=1,
            sampling_probability=1.0,
            network="fourier",
            width=self._chosen.features,
            seed=task.seed,
            augmentation="",
            projected=0,
            auxiliary="",
            clip=1.0,
            count_weight=_COUNT_WEIGHT,
            length_scale=self._chosen.length_scale,
        )
        # Where the generator is: it is too small for a graphics card to be worth the way.
        signal = Signals(query, dict[str, bytes]().__getitem__, pick_device("cpu"))[0]
        return Embedding(query, {}, signal.features, query.count_step() * query.grid())


def _seen(backbone: Backbone, task: Task, noise_multiplier: float) -> Embedding:
    content, spatial = encode_backbone(backbone), SpatialFeatures(backbone)
    digest = hashlib.sha256(content).hexdigest()
    query = SufficientStatistics(
        schema=task.schema,
        noise_multiplier=noise_multiplier,
        center=0.0,
        clip=1.0,
        class_weight=1.0,
        count_weight=_COUNT_WEIGHT,
        backbone=digest,
        features=spatial.size(task.schema.shape),
        sums_only=True,
    )
    return Embedding(query, {digest: content}, spatial, query.class_weight * query.count_weight)
