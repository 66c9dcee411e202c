"""What can be chosen about DP-GENG, how its budget is divided, and what is asked after its generator's questions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from pydantic import Field

from silosynth.common.config import Choices
from silosynth.common.queries import FeatureSums, Query
from silosynth.common.schema import Schema
from silosynth.server.generators.choice import GeneratorChoice, MerfChoice
from silosynth.server.recipes.base import Task
from silosynth.server.recipes.feature_signals import in_rounds
from silosynth.server.recipes.federated_descent import FederatedDescent
from silosynth.server.recipes.privacy_split import divided
from silosynth.server.synthesis.enlarging import QUARTERS

_UNKNOWN = "0" * 64  # stands for a file that is yet to be made
_COUNT_WEIGHT = 0.15


class GuidedParameters(Choices):
    """The paper: 20 extractors, lambda 1; its generators are diffusion models and Private Evolution."""

    generator: GeneratorChoice = Field(MerfChoice(), description='[parameters.generator] method = "merf", "evolution"')
    records_per_class: int = Field(10, ge=1, le=10_000)
    pool_per_class: int = Field(1000, ge=4, le=100_000, description="images of the pool")
    generator_share: float = Field(0.4, gt=0, description="of the budget (of mu^2), relative to the other shares")
    matching_share: float = Field(0.4, ge=0, description="of feature matching; 0 leaves it out")
    expert_share: float = Field(0.2, ge=0, description="of the expert's DP-SGD; 0: it knows the pool only")
    typical: bool = Field(True, description="start from typical images of the pool, else from any of it")
    guided: bool = Field(True, description="draw images towards what the expert takes for their class")
    packed: bool | None = Field(None, description="four records in an image (the paper); usually in coloured ones only")
    extractors: int = Field(10, ge=1, le=256)
    extractor_steps: int = Field(200, ge=1, description="batches of the pool that an extractor learns from")
    width: int = Field(32, ge=1, le=1024)
    augmentation: str = Field("color,crop,cutout,scale,rotate", description="add flip where it fits")
    signals: int = Field(100, ge=1, le=100_000, description="extractors in turn, each with an augmentation of its own")
    sampling_probability: float = Field(0.05, gt=0, le=1, description="of signals and of the expert's steps")
    expert_steps: int = Field(60, ge=1, le=100_000, description="of DP-SGD: questions to the silos")
    expert_rate: float = Field(2e-3, gt=0)
    expert_clip: float = Field(1.0, gt=0)
    expert_weight: float = Field(5.0, gt=0, description="of the expert's say beside the matching loss")
    divergence_weight: float = Field(1.0, ge=0, description="lambda")
    steps: int = Field(1000, ge=1, le=10_000_000, description="of the synthetic images")
    learning_rate: float = Field(0.05, gt=0)
    averaging: float = Field(0.99, ge=0, lt=1)
    at_once: int = Field(40, ge=1, description="records per class that a step looks at, drawn anew; at most all")

    def settled(self, schema: Schema) -> Self:
        """What was not chosen, for such images: on Fashion-MNIST packing costs a little, on CIFAR-10 it gains much."""
        if self.packed is not None or not schema.is_image:
            return self
        return self.model_copy(update={"packed": schema.shape[2] > 1})

    @property
    def looked_at(self) -> int:
        """Images per class in a step."""
        return min(max(self.at_once // self.parts, 1), self.records_per_class)

    @property
    def parts(self) -> int:
        """Records that an image holds."""
        return QUARTERS if self.packed else 1


@dataclass(frozen=True)
class Noises:
    """Multipliers of the three paid steps; None for one that is left out."""

    generator: float
    matching: float | None
    expert: float | None

    @classmethod
    def of(cls, parameters: GuidedParameters, noise_multiplier: float) -> Noises:
        """As the whole would cost about what one Gaussian mechanism of this multiplier does."""
        weights = {
            "generator": parameters.generator_share,
            "matching": parameters.matching_share,
            "expert": parameters.expert_share if parameters.guided else 0.0,
        }
        rate = parameters.sampling_probability
        sampled = {"matching": (rate, parameters.signals), "expert": (rate, parameters.expert_steps)}
        noises = divided(noise_multiplier, weights, sampled)
        return cls(noises["generator"], noises.get("matching"), noises.get("expert"))


def later_queries(task: Task, parameters: GuidedParameters, noises: Noises) -> list[Query]:
    queries = list[Query]()
    if noises.matching is not None:
        queries += feature_sums(task, parameters, noises.matching, _UNKNOWN)
    if noises.expert is not None:
        queries += [descent(parameters).query(task, noises.expert, _UNKNOWN)] * parameters.expert_steps
    return queries


def feature_sums(task: Task, parameters: GuidedParameters, noise_multiplier: float, weights: str) -> list[FeatureSums]:
    first = FeatureSums(
        schema=task.schema,
        noise_multiplier=noise_multiplier,
        first=0,
        signals=1,
        sampling_probability=parameters.sampling_probability,
        network="convnet",
        width=parameters.width,
        seed=task.seed,
        augmentation=parameters.augmentation,
        projected=0,
        auxiliary="",
        clip=1.0,
        count_weight=_COUNT_WEIGHT,
        weights=weights,
    )
    return in_rounds(first, parameters.signals)


def descent(parameters: GuidedParameters) -> FederatedDescent:
    return FederatedDescent(
        width=parameters.width,
        steps=parameters.expert_steps,
        sampling_probability=parameters.sampling_probability,
        clip=parameters.expert_clip,
        learning_rate=parameters.expert_rate,
    )
