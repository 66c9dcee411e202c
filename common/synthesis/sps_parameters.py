"""What one may choose about SPS and SPS+."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from silosynth.common.synthesis.paper_target import Matching
from silosynth.common.synthesis.settings import Settings, Workshop

PRESETS: dict[str, dict[str, Any]] = {
    "quick": {"images_per_class": 20, "steps": 150, "global_dimension": 32, "class_dimension": 32},
    "default": {},
    # For a GPU, and for photographs; the paper's network is WRN-22-8, trained on ImageNet at 32x32: name its file.
    "paper": {
        "images_per_class": 5000,
        "steps": 1000,
        "global_dimension": 192,
        "class_dimension": 192,
        "levels": 1,
        "flips": True,
        "autocast": True,
    },
}


class SpsParameters(Settings, Matching, Workshop):
    """A preset gives all that is not said otherwise."""

    preset: Literal["quick", "default", "paper"] = "default"
    statistics: Literal["paper", "spatial"] = "paper"
    labels: Literal["hard", "gaussian"] = "hard"
    backbone: str | None = Field(None, description="name or file; default: the shipped one for grey or colour images")
    images_per_class: int = Field(50, ge=1, le=1_000_000)
    steps: int = Field(350, ge=1)
    stages: int = Field(1, ge=1, le=16, description="M of SPS+; each costs a share of the budget")
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
        return PRESETS.get(str(given.get("preset", "default")), {}) | given

    @model_validator(mode="after")
    def _one_clip_for_each_stage(self) -> Self:
        if self.clips and len(self.clips) != self.stages:
            raise ValueError(f"clips has {len(self.clips)} values, there are {self.stages} stages: give one to each")
        return self

    def clip(self, stage: int) -> float:
        if self.clips:
            return self.clips[stage]
        return 1 / 8 if self.stages == 1 else 1 / 16 if stage < 2 else 1 / 32

    def settings(self, stage: int) -> Settings:
        """Later stages of SPS+ go on from the images of the one before: half the steps at 0.4 of the rate."""
        chosen = Settings(**self.model_dump(include=set(Settings.model_fields)))
        return chosen.model_copy(update={"steps": -(-self.steps // 2), "rate": 0.4 * self.rate}) if stage else chosen

    def matching(self) -> Matching:
        return Matching(**self.model_dump(include=set(Matching.model_fields)))

    def workshop(self) -> Workshop:
        return Workshop(**self.model_dump(include=set(Workshop.model_fields)))
