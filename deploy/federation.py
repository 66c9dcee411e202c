"""A federation on one machine: the folders `silosynth provision` writes, and all their processes on loopback."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from silosynth.client.releases.shelf import Shelf
from silosynth.common.config import parse
from silosynth.common.datasets import Records
from silosynth.common.errors import ConfigError
from silosynth.common.publication.names import ReleaseName
from silosynth.deploy import site
from silosynth.deploy.addresses import LOOPBACK, free_port
from silosynth.deploy.flower import BUNDLE
from silosynth.deploy.kits import FederationFolder, Place
from silosynth.deploy.processes import Processes
from silosynth.deploy.server_folder import ServerFolder
from silosynth.deploy.simulation import Simulation, settle
from silosynth.server.config import RunConfig

# Many processes share this machine: waiting for each other's cores, threads would take longer than one alone.
ONE_THREAD = {"OMP_NUM_THREADS": "1"}


class LocalFederation:
    """A federation on this machine and its processes, TLS on. Provisioned in `folder` if there is none yet."""

    def __init__(self, folder: Path, processes: Processes) -> None:
        self.folder = folder.resolve()
        self._processes = processes
        self._federation = local_federation(self.folder)
        self._server = ServerFolder(self._federation.server)
        self._sockets = _own_folder(socket_folder(self.folder))

    @property
    def silos(self) -> list[str]:
        return self._federation.silos()

    def guard_folder(self, silo: str) -> Path:
        return self._federation.kit(silo).guard

    def courier_folder(self, silo: str) -> Path:
        return self._federation.kit(silo).courier

    def guard_address(self, silo: str) -> str:
        return guard_address(self.folder, silo)

    def add_silo(self, silo: str, shard: Records, budget: Mapping[str, float], policy: Mapping[str, Any]) -> None:
        """A silo whose people have filled in its silo.toml: these records, this budget, this policy."""
        settle(self._federation, silo, shard, budget, policy, self.guard_address(silo))

    def settle(self, simulation: Simulation, train: Records) -> None:
        """All silos of a simulation, with the records dealt to them."""
        for silo, shard in zip(simulation.names(), simulation.shards(train), strict=True):
            simulation.settle(self._federation, silo, shard, self.guard_address(silo))

    def start(self) -> None:
        """Start guards, Flower and couriers."""
        for silo in self.silos:
            self.start_guard(silo)
        self._server.start(self._processes, **ONE_THREAD)
        for silo in self.silos:
            self.start_node(silo)
        for silo in self.silos:
            self.wait_for_guard(silo)

    def start_guard(self, silo: str) -> None:
        site.start_guard(self._processes, self._federation.kit(silo), f"guard-{silo}", **ONE_THREAD)

    def wait_for_guard(self, silo: str) -> None:
        site.wait_for_guard(self._processes, self._federation.kit(silo))

    def start_node(self, silo: str) -> None:
        """On this machine a courier must be kept out of the other silos and of the server as well."""
        site.start_courier(self._processes, self._federation.kit(silo), self._private(silo), f"courier-{silo}")

    def start_puller(self, silo: str) -> None:
        site.start_puller(self._processes, self._federation.kit(silo), self._private(silo), f"puller-{silo}")

    def share(self, release: ReleaseName) -> dict[str, Path]:
        """Have every silo pull and verify a release, as `silosynth silo run` does; where each has put it."""
        places = {silo: Shelf(self._federation.kit(silo).releases).place(release) for silo in self.silos}
        for silo in self.silos:
            self.start_puller(silo)
        for silo, place in places.items():
            self._processes.wait_until(place.is_dir, f"{release} at {silo}", seconds=300)
        return places

    def _private(self, silo: str) -> list[Path]:
        kits = [self._federation.kit(name) for name in self.silos]
        private = [folder for kit in kits for folder in site.private_folders(kit)]
        private += [kit.folder for kit in kits if kit != self._federation.kit(silo)]
        return [*private, self._federation.authority, self._federation.server]

    def guard_pid(self, silo: str) -> int:
        return self._processes.children[f"guard-{silo}"].process.pid

    def kill_guard(self, silo: str) -> None:
        self._processes.stop(f"guard-{silo}", signal.SIGKILL)

    def kill(self, silo: str) -> None:
        """A silo that vanishes: no farewell, no flush."""
        self._processes.stop(f"courier-{silo}", signal.SIGKILL)
        self.kill_guard(silo)

    def submit(self, run: Mapping[str, Any], bundle: Path = BUNDLE) -> Path:
        """Hand a run to Flower; returns the run's folder."""
        return self._server.submit(parse(RunConfig, run, "run"), self._processes.environment(), bundle)

    def close(self) -> None:
        shutil.rmtree(self._sockets, ignore_errors=True)


def local_federation(folder: Path) -> FederationFolder:
    """The federation in a simulation's folder; a new one, on free ports of loopback, if there is none."""
    federation = folder / "federation"
    if federation.exists():
        return FederationFolder.open(federation)
    ports = {f"{name}_port": free_port() for name in ("control", "catalog", "consumer", "dashboard", "metrics")}
    return FederationFolder.create(federation, Place((LOOPBACK,), free_port(), exchange_port=0, **ports))


def guard_address(folder: Path, silo: str) -> str:
    return f"unix:{socket_folder(folder) / silo}.sock"


def socket_folder(folder: Path) -> Path:
    """Not in `folder`, whose path may be long: a socket's has narrow limits."""
    mark = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:12]
    return Path(tempfile.gettempdir()) / f"silosynth-{mark}"


def _own_folder(folder: Path) -> Path:
    folder.mkdir(mode=0o700, exist_ok=True)
    facts = folder.lstat()
    if facts.st_uid != os.getuid() or facts.st_mode & 0o077:
        raise ConfigError(f"{folder} is not this user's alone, and guards would listen in it: remove it")
    return folder
