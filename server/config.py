"""server.toml and run.toml."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from silosynth.common.config import Section, load
from silosynth.common.datasets import DataConfig
from silosynth.common.errors import ConfigError
from silosynth.common.schema import Schema


class ExchangeSettings(Section):
    """Where silos dial in, and who we are to them."""

    host: str = "127.0.0.1"
    port: int = Field(0, ge=0, le=65535, description="0 takes a free port; the invitation tells it")
    public_host: str = Field("127.0.0.1", description="what silos dial: a name or address in the certificate")
    ca: Path
    certificate: Path
    key: Path


class FlowerSettings(Section):
    """Where Flower's SuperLink listens."""

    fleet: str = Field(description="host:port for the silos' SuperNodes")
    control: str = Field(description="host:port for us: whoever reaches it can submit runs, so keep it on loopback")


class SiloEntry(Section):
    """A silo that may take part. Who is not listed is refused, whatever certificate he shows."""

    name: str
    node_key: Path = Field(description="public key of its SuperNode")
    certificate: str = Field(pattern="^[0-9a-f]{64}$", description="SHA-256 of its certificate, for the exchange")


class ServerConfig(Section):
    """server.toml"""

    flower: FlowerSettings
    exchange: ExchangeSettings
    silos: tuple[SiloEntry, ...] = ()

    def certificates(self, silos: tuple[str, ...]) -> dict[str, str]:
        """The certificate each of `silos` must show; ConfigError if one is not registered."""
        registered = {silo.name: silo.certificate for silo in self.silos}
        if unknown := sorted(set(silos) - set(registered)):
            raise ConfigError(
                f"federation.silos: {', '.join(unknown)} not registered with this server; "
                f"registered are {', '.join(registered) or 'none'}: see `silosynth provision --add-silo`"
            )
        return {silo: registered[silo] for silo in silos}


def load_server(path: Path) -> ServerConfig:
    """Read server.toml; relative paths are taken from its folder."""
    config, folder = load(ServerConfig, path), path.absolute().parent
    identity = {name: folder / getattr(config.exchange, name) for name in ("ca", "certificate", "key")}
    silos = tuple(silo.model_copy(update={"node_key": folder / silo.node_key}) for silo in config.silos)
    return config.model_copy(update={"exchange": config.exchange.model_copy(update=identity), "silos": silos})


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
    consent_seconds: float = Field(24 * 3600, ge=0, description="how long to wait for people who must allow a query")


class EvaluationSettings(Section):
    """Public test data, and the non-private ceiling where a simulation knows it."""

    test: DataConfig | None = None
    ceiling: float | None = None
    model: Literal["auto", "convnet", "linear"] = Field("auto", description="auto: convnet for images, else linear")
    steps: int = Field(400, ge=1)
    seeds: int = Field(3, ge=1)
    device: str = Field("auto", description="auto, cpu or cuda")


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
