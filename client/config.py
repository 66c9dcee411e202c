"""The silo's two TOML files: silo.toml is the guard's, courier.toml the courier's, which must not know of the data."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, Field

from silosynth.common.config import Section, load
from silosynth.common.datasets.data_config import DataConfig
from silosynth.common.errors import ConfigError

_UNIX = "unix:"
_LONGEST_SOCKET_PATH = 100  # the kernel's limit is 108 bytes, its final zero and gRPC's needs included


def _local(address: str) -> str:
    """The guard has no password: only this machine may reach it."""
    if address.startswith(_UNIX) and len(address) > len(_UNIX):
        return address
    host, _, port = address.rpartition(":")
    try:
        reachable = ipaddress.ip_address(host.strip("[]")).is_loopback and 0 <= int(port) < 1 << 16
    except ValueError:
        reachable = False
    if not reachable:
        raise ValueError('must be "unix:PATH" or a loopback address such as "127.0.0.1:5001"')
    return address


ANNOUNCED = "announced"  # beside courier.toml: touched whenever the server tells of a finished dataset

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
LocalAddress = Annotated[str, AfterValidator(_local)]
HostAndPort = Annotated[str, Field(pattern=r"^(\[[0-9A-Fa-f:.]+\]|[^:\s]+):[0-9]{1,5}$")]
Anchored = TypeVar("Anchored", bound=Section)


class SiloSection(Section):
    name: Name
    dataset: Name = "default"
    """Whom the records are about. The budget belongs to it: records that change or are added keep the name."""
    disjoint_from: tuple[Name, ...] = ()
    """Earlier datasets of this ledger none of whose people are in this one: only then has it a budget of its own."""


class BudgetSection(Section):
    """All releases about the dataset together, for ever, stay within (epsilon, delta)."""

    epsilon: Annotated[float, Field(gt=0)]
    """`inf` switches privacy off: for public data and baselines only."""
    delta: Annotated[float, Field(gt=0, lt=1)]


class PolicySection(Section):
    """What the silo allows. What is not said is denied."""

    consent: Literal["auto", "ask", "deny"] = "deny"
    """`ask`: what policy and budget allow waits until `silosynth silo approve` lets it through."""
    mechanisms: tuple[str, ...] = ()
    backbones: tuple[str, ...] = ()
    """Networks that queries may send records through: names of shipped ones, or SHA-256 digests of others' files."""
    public_inputs: bool = False
    """Everything about the records but their labels counts as public: queries that protect labels only are allowed."""
    max_epsilon_per_query: Annotated[float, Field(gt=0)] | None = None
    max_epsilon_per_period: Annotated[float, Field(gt=0)] | None = None
    period_days: Annotated[int, Field(gt=0, le=36_500)] = 30
    """The releases of any so many days together stay within max_epsilon_per_period."""
    max_values_per_release: Annotated[int, Field(gt=0, le=100_000_000)] = 10_000_000


class GuardSection(Section):
    address: LocalAddress
    ledger: Path
    key: Path
    """Signs receipts; created on first start."""
    device: Annotated[str, Field(pattern=r"^(auto|cpu|mps|cuda(:[0-9]+)?)$")] = "auto"
    """Where mechanisms with networks compute."""


class SiloConfig(Section):
    """silo.toml."""

    silo: SiloSection
    data: DataConfig
    budget: BudgetSection
    policy: PolicySection = PolicySection()
    guard: GuardSection


class ServerSection(Section):
    """Whom the silo dials; nobody ever dials the silo."""

    fleet: HostAndPort
    """Flower's SuperLink: invitations."""
    exchange: HostAndPort
    """Queries and releases. It listens only during runs; port 0 stands for one that each invitation names."""
    catalog: HostAndPort | None = None
    """Finished datasets, to be pulled."""


class CourierConfig(Section):
    """courier.toml."""

    silo: Name
    guard: LocalAddress
    ca: Path
    certificate: Path
    key: Path
    node_key: Path
    """By which Flower knows this silo's SuperNode."""
    server: ServerSection
    publisher: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None
    """The public key that must have signed what is pulled from the catalog."""
    pull: bool = False
    """Whether finished datasets are pulled as soon as there are any."""
    patience_seconds: Annotated[float, Field(gt=0)] = 300.0
    """How long to redial an exchange that does not answer."""

    @property
    def guard_target(self) -> str:
        """What gRPC dials: it understands the same two forms of address."""
        return self.guard


def load_silo(path: Path) -> SiloConfig:
    """Read silo.toml; relative paths of the guard are taken from its folder, as `load_records` takes the data's."""
    config = load(SiloConfig, path)
    return config.model_copy(update={"guard": _anchored(config.guard, "address", ("ledger", "key"), path)})


def load_courier(path: Path) -> CourierConfig:
    """Read courier.toml; relative paths are taken from its folder."""
    return _anchored(load(CourierConfig, path), "guard", ("ca", "certificate", "key", "node_key"), path)


def socket_path(address: str) -> Path | None:
    """Where a Unix socket lies; None for a port."""
    return Path(address.removeprefix(_UNIX)) if address.startswith(_UNIX) else None


def _anchored(section: Anchored, address: str, paths: tuple[str, ...], source: Path) -> Anchored:
    folder = source.absolute().parent
    absolute: dict[str, Path | str] = {name: folder / getattr(section, name) for name in paths}
    socket = socket_path(getattr(section, address))
    if socket is not None:
        absolute[address] = f"{_UNIX}{folder / socket}"
        if len(str(folder / socket).encode()) > _LONGEST_SOCKET_PATH:
            raise ConfigError(f"{source}: {folder / socket} is too long for a Unix socket: choose a shorter path")
    return section.model_copy(update=absolute)
