"""A federation on one machine: the folders `silosynth provision` writes, and all their processes on loopback."""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from silosynth.client.config import load_silo
from silosynth.client.releases.shelf import Shelf
from silosynth.common.config import parse
from silosynth.common.datasets import Records, save_npz
from silosynth.common.publication.names import ReleaseName
from silosynth.deploy import site
from silosynth.deploy.addresses import LOOPBACK, free_port
from silosynth.deploy.flower import BUNDLE
from silosynth.deploy.kit_texts import Answers
from silosynth.deploy.kits import FederationFolder, Place
from silosynth.deploy.processes import Processes
from silosynth.deploy.server_folder import ServerFolder
from silosynth.server.config import RunConfig

# Many processes share this machine: waiting for each other's cores, threads would take longer than one alone.
_ONE_THREAD = {"OMP_NUM_THREADS": "1"}


class LocalFederation:
    """Provisions a federation on this machine and runs its processes, TLS on."""

    def __init__(self, folder: Path, processes: Processes) -> None:
        self.folder = folder.resolve()
        self.silos: list[str] = []
        self._processes = processes
        ports = {f"{name}_port": free_port() for name in ("control", "catalog", "consumer", "dashboard")}
        place = Place((LOOPBACK,), free_port(), exchange_port=0, **ports)
        self._federation = FederationFolder.create(self.folder / "federation", place)
        self._server = ServerFolder(self._federation.server)
        self._sockets = Path(tempfile.mkdtemp(prefix="silosynth-"))  # short: a socket's path has narrow limits

    def guard_folder(self, silo: str) -> Path:
        return self._federation.kit(silo).guard

    def courier_folder(self, silo: str) -> Path:
        return self._federation.kit(silo).courier

    def guard_address(self, silo: str) -> str:
        return f"unix:{self._sockets / silo}.sock"

    def add_silo(self, silo: str, shard: Records, budget: Mapping[str, float], policy: Mapping[str, Any]) -> None:
        """A silo whose people have filled in its silo.toml: these records, this budget, this policy."""
        data = {"source": "npz", "path": "records.npz", "classes": shard.schema.classes}
        kit = self._federation.add_silo(silo, self.guard_address(silo), Answers(data, budget, policy))
        save_npz(shard, kit.guard / "records.npz")
        load_silo(kit.silo_toml)  # what is wrong with it is told here, not in a log
        self.silos.append(silo)

    def start(self) -> None:
        """Start guards, Flower and couriers."""
        for silo in self.silos:
            self.start_guard(silo)
        self._server.start(self._processes, **_ONE_THREAD)
        for silo in self.silos:
            self.start_node(silo)
        for silo in self.silos:
            self.wait_for_guard(silo)

    def start_guard(self, silo: str) -> None:
        site.start_guard(self._processes, self._federation.kit(silo), f"guard-{silo}", **_ONE_THREAD)

    def wait_for_guard(self, silo: str) -> None:
        site.wait_for_guard(self._processes, self._federation.kit(silo))

    def start_node(self, silo: str) -> None:
        """On this machine a courier must be kept out of the other silos and of the server as well."""
        site.start_courier(self._processes, self._federation.kit(silo), self._private(silo), f"node-{silo}")

    def share(self, release: ReleaseName) -> dict[str, Path]:
        """Have every silo pull and verify a release, as `silosynth silo run` does; where each has put it."""
        places = {silo: Shelf(self._federation.kit(silo).releases).place(release) for silo in self.silos}
        for silo in self.silos:
            site.start_puller(self._processes, self._federation.kit(silo), self._private(silo), f"puller-{silo}")
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
        self._processes.stop(f"node-{silo}", signal.SIGKILL)
        self.kill_guard(silo)

    def submit(self, run: Mapping[str, Any], bundle: Path = BUNDLE) -> Path:
        """Hand a run to Flower; returns the run's folder."""
        return self._server.submit(parse(RunConfig, run, "run"), self._processes.environment(), bundle)

    def close(self) -> None:
        shutil.rmtree(self._sockets, ignore_errors=True)
