"""server.toml and run.toml."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field

from silosynth.common.config import Section
from silosynth.common.datasets import DataConfig
from silosynth.common.schema import Schema


class ExchangeSettings(Section):
    """Where silos dial in, and who we are to them."""

    host: str = "127.0.0.1"
    port: int = Field(0, ge=0, le=65535, description="0 takes a free port; the invitation tells it")
    ca: Path
    certificate: Path
    key: Path


class ServerConfig(Section):
    """server.toml"""

    exchange: ExchangeSettings


class SchemaSettings(Section):
    shape: tuple[int, ...]
    classes: int
    class_names: tuple[str, ...] = ()

    def schema_of_records(self) -> Schema:
        return Schema(self.shape, self.classes)


class PrivacySettings(Section):
    """What each silo is asked to spend on this run."""

    epsilon: float = Field(gt=0)
    delta: float = Field(1e-5, gt=0, lt=1)


class FederationSettings(Section):
    """Whom to invite, and how long to wait for whom."""

    silos: tuple[str, ...] = Field(min_length=1)
    quorum: int = Field(1, ge=1, description="fewest silos whose answers make a run worth finishing")
    gather_seconds: float = Field(120, gt=0, description="how long to wait for invited silos to attend")
    grace_seconds: float = Field(90, gt=0, description="how long a silo may be away before the run goes on without it")
    answer_seconds: float = Field(3600, gt=0, description="how long a silo may take for one answer")


class EvaluationSettings(Section):
    """Public test data, and the non-private ceiling where a simulation knows it."""

    test: DataConfig | None = None
    ceiling: float | None = None
    model: str = "convnet"
    seeds: int = Field(3, ge=1)


class RunConfig(Section):
    """run.toml: a recipe, its parameters and its public circumstances."""

    name: str
    recipe: str
    seed: int = 0
    records: SchemaSettings
    privacy: PrivacySettings
    federation: FederationSettings
    parameters: dict[str, Any] = Field(default_factory=dict)
    evaluation: EvaluationSettings = EvaluationSettings()
