"""What runs a simulated federation's parts: processes or containers, from the same folders."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from silosynth.common.config import load
from silosynth.common.errors import ConfigError
from silosynth.deploy.kits import FederationFolder, Kit
from silosynth.deploy.server_folder import ServerFolder
from silosynth.deploy.simulation import Simulation
from silosynth.server.config import RunConfig

SIM_TOML = "sim.toml"


@dataclass(frozen=True)
class Part:
    """One process or container, as it is now."""

    name: str
    state: str
    memory: int = 0  # bytes


@dataclass(frozen=True)
class SimFolder:
    """Holds sim.toml, federation/ as `silosynth provision` makes it, and what engines add."""

    folder: Path

    def simulation(self) -> Simulation:
        if not (self.folder / SIM_TOML).exists():
            raise ConfigError(f"{self.folder} holds no simulated federation: `silosynth sim up` makes one")
        return load(Simulation, self.folder / SIM_TOML)

    @property
    def federation(self) -> FederationFolder:
        return FederationFolder(self.folder / "federation")

    @property
    def server(self) -> ServerFolder:
        return ServerFolder(self.federation.server)

    def kit(self, silo: str) -> Kit:
        return self.federation.kit(silo)

    def silos(self) -> list[str]:
        return self.federation.silos()


class Engine(Protocol):
    """Every method returns when what it says is so."""

    def create(self) -> FederationFolder:
        """Make the folders of a federation whose parts this engine can bring together."""

    def guard_address(self, silo: str) -> str:
        """Where a silo's guard and courier meet."""

    def server_path(self, path: Path) -> str:
        """Where the server finds a file of its folder."""

    def up(self) -> dict[str, float]:
        """Start what the folders describe and is not running; tells after how many seconds each part answered."""

    def submit(self, run: RunConfig) -> Path:
        """Hand a run to the server; returns its folder on this machine."""

    def dashboard(self, visitor: str) -> str:
        """Its address for a browser; where one has to log in, with a token for `visitor`, who is a new one."""

    def parts(self) -> list[Part]: ...

    def kill(self, name: str) -> None:
        """A silo, or a part of the server, vanishes: no farewell, no flush. It stays away until it is revived."""

    def revive(self, name: str) -> None: ...

    def log(self, name: str) -> str:
        """What a silo or a part of the server has said."""

    def down(self) -> None:
        """End every part. The folder, with ledgers and datasets, is left."""
