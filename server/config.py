"""server.toml and run.toml."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from silosynth.common.config import Section, load
from silosynth.common.datasets import DataConfig
from silosynth.common.datasets.table_config import TableConfig
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


class CatalogSettings(Section):
    """Where finished releases are handed out. It shows the exchange's certificate."""

    host: str = "127.0.0.1"
    port: int = Field(9095, ge=0, le=65535, description="for silos: mutual TLS")
    consumer_port: int = Field(9096, ge=0, le=65535, description="for consumers: TLS, and a token")


class DashboardSettings(Section):
    """Where people look. Anywhere but on loopback it shows the exchange's certificate and asks for a token."""

    host: str = "127.0.0.1"
    port: int = Field(9097, ge=0, le=65535)

    @property
    def is_local(self) -> bool:
        """Whether only this machine is served."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


class MetricsSettings(Section):
    """Where Prometheus finds public facts about this server: HTTP, no login."""

    host: str = "127.0.0.1"
    port: int = Field(9098, ge=0, le=65535)


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
    catalog: CatalogSettings = CatalogSettings()
    dashboard: DashboardSettings = DashboardSettings()
    metrics: MetricsSettings = MetricsSettings()
    silos: tuple[SiloEntry, ...] = ()

    @property
    def dashboard_address(self) -> str:
        """For a browser."""
        settings = self.dashboard
        if settings.is_local:
            return f"http://{settings.host}:{settings.port}"
        return f"https://{self.exchange.public_host}:{settings.port}"

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
    table: TableConfig | None = Field(
        None, description="a table's columns, as the silos declare them: rows are released in these units and words"
    )

    @model_validator(mode="after")
    def _agrees_with_the_table(self) -> Self:
        if self.table is not None and self.table.record_schema != Schema(self.shape, self.classes):
            (columns,), classes = self.table.record_schema.shape, self.table.record_schema.classes
            raise ValueError(f"the table's columns make records of shape [{columns}] and {classes} classes")
        if self.table is not None and self.class_names:
            raise ValueError("class_names come from the table's label column: leave them out")
        return self

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


Augmentation = Literal["color", "crop", "cutout", "flip", "scale", "rotate"]
ModelName = Annotated[
    str,
    Field(pattern="^(auto|linear|lenet|backbone|(mlp|convnet|alexnet|vgg11|resnet18)(-[1-9][0-9]{0,3})?)$"),
]
"""Of an architecture, with a width where it has one, such as convnet-128."""


class EvaluationSettings(Section):
    """Public test data, how models are trained before they are tested, and the non-private ceiling if it is known."""

    test: DataConfig | None = None
    ceiling: float | None = None
    protocol: Literal["quick", "family", "family-short", "sps"] = Field(
        "quick", description="family: as dataset condensation papers evaluate; sps: fine-tuning a public backbone"
    )
    model: ModelName = Field("auto", description="auto: backbone for sps, else convnet for images, linear for tables")
    architectures: tuple[ModelName, ...] = Field((), description="further models, for the cross-architecture table")
    backbone: str | None = Field(None, description="name or .safetensors file, if the shipped one is not wanted")
    augmentation: tuple[Augmentation, ...] | None = Field(
        None, description="unset: the protocol's, without flip; add flip where mirror images are as likely"
    )
    steps: int | None = Field(None, ge=1, description="unset: the protocol's, by the number of synthetic records")
    seeds: int = Field(3, ge=1)
    device: str = Field("auto", description="auto, cpu or cuda")
    baselines: tuple[Literal["prototypes", "ridge", "merf", "dp-fedavg"], ...] = Field(
        (), description="other ways to compare with; for each of them every silo is asked for the run's epsilon again"
    )
    silo_epsilon: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="what each silo is asked to spend, beside the run's epsilon, on a score on its own images",
    )

    @model_validator(mode="after")
    def _backbone_is_used(self) -> Self:
        automatic = self.model == "auto" and self.protocol == "sps"
        used = automatic or self.silo_epsilon or "backbone" in (self.model, *self.architectures)
        if self.backbone and not used:
            raise ValueError('backbone is set but not used: add model = "backbone", or leave it out')
        return self

    @model_validator(mode="after")
    def _score_has_a_place(self) -> Self:
        if self.silo_epsilon is not None and self.test is None:
            raise ValueError("silo_epsilon: the silos' score stands beside that on public records: set test, too")
        if self.baselines and self.test is None:
            raise ValueError("baselines: they are compared on public records: set test, too")
        return self


class PublicationSettings(Section):
    """What people are told of the release beside what receipts prove. Public words, chosen by people."""

    description: str = "Synthetic records from differentially private statistics of the silos named here."
    intended_use: str = "Training and testing of models where the real records cannot be shared."
    curators: tuple[str, ...] = Field((), description="who publishes; default: the silos that answered")
    region: str = "not stated"
    sector: Literal["Technology", "Healthcare", "Education", "Government", "Energy", "Finance"] | None = None
    license: str | None = None
    tuning: str = Field(
        "The publisher states no tuning of the recipe's parameters on the silos' records.",
        description="how parameters were chosen, and what that cost",
    )


class RunConfig(Section):
    """run.toml: a recipe, its parameters and its public circumstances."""

    name: str
    recipe: str
    seed: int = 0
    extends: str | None = Field(None, description="an earlier release, such as demo/3: its statistics are reused, free")
    records: SchemaSettings
    privacy: PrivacySettings
    federation: FederationSettings
    parameters: dict[str, Any] = Field(default_factory=dict)
    evaluation: EvaluationSettings = EvaluationSettings()
    release: PublicationSettings = PublicationSettings()

    @model_validator(mode="after")
    def _scores_are_of_images(self) -> Self:
        if self.evaluation.silo_epsilon is not None and not self.records.schema_of_records().is_image:
            raise ValueError("evaluation.silo_epsilon: a public backbone looks at images, these records are rows")
        return self

    @model_validator(mode="after")
    def _baselines_fit(self) -> Self:
        if self.recipe in self.evaluation.baselines:
            raise ValueError(f"evaluation.baselines: {self.recipe} is the run's recipe itself, leave it out")
        if "dp-fedavg" in self.evaluation.baselines and not self.records.schema_of_records().is_image:
            raise ValueError("evaluation.baselines: dp-fedavg trains a convnet, these records are rows: leave it out")
        return self
