"""What one may choose about SPS and SPS+."""

from __future__ import annotations

import math
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from silosynth.common.synthesis.settings import Matching, Settings, Workshop

_PAPER_STATISTICS = {
    "stages": 1,
    "labels": "hard",
    "images_per_class": 50,
    "steps": 350,
    "rate": 0.25,
    "levels": 1,
    "smallest_crop": 0.3,
}
PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "spatial": {"quick": {"images_per_class": 20, "steps": 60}, "default": {}},
    "paper": {
        "quick": _PAPER_STATISTICS
        | {"images_per_class": 20, "steps": 150, "global_dimension": 32, "class_dimension": 32},
        "default": _PAPER_STATISTICS,
        # For a GPU, and for photographs; the paper's network is WRN-22-8, trained on ImageNet at 32x32: name its file.
        "paper": _PAPER_STATISTICS
        | {
            "images_per_class": 5000,
            "steps": 1000,
            "global_dimension": 192,
            "class_dimension": 192,
            "flips": True,
            "autocast": True,
        },
    },
}
_ONLY_PAPER = (
    *Matching.model_fields,
    *("pseudo_classes", "classes_per_pseudo_class", "global_dimension", "class_dimension", "class_layers"),
    *("clips", "count_weight"),
)
FIRST_STAGE = 4.0  # times the noise of the second stage of spatial SPS+: a sixteenth of the budget
_ROUNDING = 1 + 2.0**-40  # stages together must not cost more than the whole, not even in the last bit


class SpsParameters(Settings, Matching, Workshop):
    """A preset gives all that is not said otherwise.

    The paper's statistics forget where in an image something is; spatial ones keep it. See the statistics' own files.
    """

    preset: Literal["quick", "default", "paper"] = "default"
    statistics: Literal["paper", "spatial"] = "spatial"
    labels: Literal["hard", "gaussian"] = Field(
        "gaussian", description="gaussian: soft ones, by a discriminant that the spatial statistics hold; free"
    )
    guide: float = Field(0.0, ge=0, description="weight of that discriminant's cross-entropy in the synthesis")
    generation: Literal["central", "local"] = Field(
        "central", description="local: every silo makes images of its own statistics, and the union is released"
    )
    backbone: str | None = Field(None, description="name or file; default: the shipped one for grey or colour images")
    images_per_class: int = Field(200, ge=1, le=1_000_000)
    steps: int = Field(100, ge=1)
    rate: float = Field(0.05, gt=0)
    levels: int = Field(3, ge=1, le=8)
    smallest_crop: float = Field(1.0, gt=0, le=1)
    stages: int = Field(2, ge=1, le=16, description="M of SPS+; 1: SPS. Spatial statistics have two at most")
    pseudo_classes: int = Field(0, ge=0, description="P of SPS+; 0: the classes themselves")
    classes_per_pseudo_class: int = Field(0, ge=0)
    global_dimension: int = Field(64, ge=1, description="D_G")
    class_dimension: int = Field(64, ge=1, description="D_C")
    class_layers: int = Field(3, ge=1, description="|L_C|: classes are told apart at the last layers")
    clips: tuple[float, ...] = Field(
        (), description="K of each stage; default: 1/8 for one, 1/16, 1/16, 1/32... for several"
    )
    count_weight: float = Field(0.15, gt=0, description="kappa: the counting coordinate's share of the bound")

    @model_validator(mode="before")
    @classmethod
    def _with_preset(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        preset = str(given.get("preset", "default"))
        statistics = str(given.get("statistics", "paper" if preset == "paper" else "spatial"))
        return {"statistics": statistics} | PRESETS.get(statistics, {}).get(preset, {}) | given

    @model_validator(mode="after")
    def _options_mean_something(self) -> Self:
        if self.statistics == "paper":
            if self.labels == "gaussian" or self.guide:
                raise ValueError('gaussian labels and guide need statistics = "spatial"')
            if self.clips and len(self.clips) != self.stages:
                raise ValueError(
                    f"clips has {len(self.clips)} values, there are {self.stages} stages: give one to each"
                )
            return self
        if self.stages > 2 or self.preset == "paper":
            raise ValueError('spatial statistics have one or two stages, and no preset "paper"')
        fields = type(self).model_fields
        if idle := [name for name in _ONLY_PAPER if getattr(self, name) != fields[name].default]:
            raise ValueError(f'{", ".join(idle)} mean nothing to spatial statistics: set statistics = "paper"')
        return self

    def clip(self, stage: int) -> float:
        if self.clips:
            return self.clips[stage]
        return 1 / 8 if self.stages == 1 else 1 / 16 if stage < 2 else 1 / 32

    def noises(self, total: float) -> tuple[float, ...]:
        """Noise multipliers of the stages, which together cost what one Gaussian mechanism of multiplier `total` does.

        Gaussian mechanisms compose to a Gaussian one: 1 / total^2 is the sum of 1 / z^2.
        """
        relative = [FIRST_STAGE, 1.0] if (self.statistics, self.stages) == ("spatial", 2) else [1.0] * self.stages
        scale = total * math.sqrt(sum(1 / part**2 for part in relative)) * (_ROUNDING if len(relative) > 1 else 1)
        return tuple(part * scale for part in relative)

    def settings(self, stage: int) -> Settings:
        """Later stages of SPS+ go on from the images of the one before: half the steps at 0.4 of the rate."""
        chosen = Settings(**self.model_dump(include=set(Settings.model_fields)))
        return chosen.model_copy(update={"steps": -(-self.steps // 2), "rate": 0.4 * self.rate}) if stage else chosen

    def steps_in_all(self) -> int:
        """Of every image, over all stages that make images."""
        stages = self.stages if self.statistics == "paper" else 1
        return sum(self.settings(stage).steps for stage in range(stages))

    def matching(self) -> Matching:
        return Matching(**self.model_dump(include=set(Matching.model_fields)))

    def workshop(self) -> Workshop:
        return Workshop(**self.model_dump(include=set(Workshop.model_fields)))
