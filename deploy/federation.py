"""A federation on one machine: folders, identities and processes, with the same parts a real one has.

guards/<silo>/    silo.toml, records, ledger, receipt key: only the guard's process reads this
couriers/<silo>/  courier.toml, certificates, node key: what Flower's client app may see
server/           certificate, server.toml, Flower's home
runs/<number>/    run.toml, journal, release
"""

from __future__ import annotations

import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w
from cryptography.hazmat.primitives.serialization import Encoding

from silosynth.common.datasets import Records, save_npz
from silosynth.common.errors import ConfigError
from silosynth.deploy import sandbox
from silosynth.deploy.flower import BUNDLE, QUIET, Flwr, SuperLink
from silosynth.deploy.processes import Processes
from silosynth.deploy.provision import Authority, write_identity, write_node_key

LOOPBACK = "127.0.0.1"
_LONGEST_SOCKET_PATH = 100  # the kernel's limit is 108 bytes


class LocalFederation:
    """Creates the folders of a federation and runs its processes on loopback, TLS on."""

    def __init__(self, folder: Path, processes: Processes) -> None:
        self.folder = folder.resolve()
        self.silos: list[str] = []
        self._processes = processes
        self._authority = Authority.create("silosynth federation")
        self._link = SuperLink(f"{LOOPBACK}:{free_port()}", f"{LOOPBACK}:{free_port()}")
        self._sockets = Path(tempfile.mkdtemp(prefix="silosynth-"))
        self._write_server()

    def guard_folder(self, silo: str) -> Path:
        return self.folder / "guards" / silo

    def courier_folder(self, silo: str) -> Path:
        return self.folder / "couriers" / silo

    def guard_address(self, silo: str) -> str:
        return f"unix:{self._sockets / silo}.sock"

    def add_silo(self, silo: str, shard: Records, budget: Mapping[str, float], policy: Mapping[str, Any]) -> None:
        """Write a silo's two folders: the guard's with the records, the courier's without."""
        guard, courier = self.guard_folder(silo), self.courier_folder(silo)
        guard.mkdir(parents=True, mode=0o700)
        courier.mkdir(parents=True, mode=0o700)
        save_npz(shard, guard / "records.npz")
        address = self.guard_address(silo)
        if len(address) > _LONGEST_SOCKET_PATH:
            raise ConfigError(f"{address} is too long for a Unix socket: set TMPDIR to a shorter folder")
        _write_toml(
            guard / "silo.toml",
            {
                "silo": {"name": silo},
                "data": {"source": "npz", "path": "records.npz", "classes": shard.schema.classes},
                "budget": dict(budget),
                "policy": dict(policy),
                "guard": {"address": address, "ledger": "ledger.db", "key": "receipts.key"},
            },
        )
        self._write_ca(courier)
        write_identity(courier, "silo", *self._authority.issue(silo, [], server=False))
        write_node_key(courier)
        _write_toml(
            courier / "courier.toml",
            {"silo": silo, "guard": address, "ca": "ca.crt", "certificate": "silo.crt", "key": "silo.key"},
        )
        self.silos.append(silo)

    def start(self) -> None:
        """Start SuperLink and guards, register the nodes, start the SuperNodes."""
        server = self.folder / "server"
        self._processes.start(
            "superlink",
            self._link.command(server / "ca.crt", server / "server.crt", server / "server.key"),
            **QUIET,
            FLWR_HOME=str(server / "flower"),
        )
        for silo in self.silos:
            self.start_guard(silo)
        self._processes.wait_until(lambda: _listening(self._link.fleet), "Flower's SuperLink")
        self._processes.wait_until(lambda: _listening(self._link.control), "Flower's SuperLink")
        self.flwr.register({silo: self.courier_folder(silo) / "node.pub" for silo in self.silos})
        for silo in self.silos:
            self.start_node(silo)
        for silo in self.silos:
            self.wait_for_guard(silo)

    @property
    def flwr(self) -> Flwr:
        server = self.folder / "server"
        environment = self._processes.environment()
        return Flwr.configured(server / "flwr", self._link, server / "ca.crt", environment)

    def start_guard(self, silo: str) -> None:
        config = self.guard_folder(silo) / "silo.toml"
        command = [sys.executable, "-m", "silosynth.client.guard_process", "--config", str(config)]
        self._processes.start(f"guard-{silo}", command, OMP_NUM_THREADS="1")

    def wait_for_guard(self, silo: str) -> None:
        child = self._processes.children[f"guard-{silo}"]
        self._processes.wait_until(lambda: "guard ready" in child.tail(3), f"the guard of {silo}")

    def start_node(self, silo: str) -> None:
        """A SuperNode; where the kernel has Landlock, neither it nor its client apps can open a guard's folder."""
        courier = self.courier_folder(silo)
        for scratch in ("flower", "tmp"):
            (courier / scratch).mkdir(exist_ok=True)
        command = self._link.node_command(
            courier / "ca.crt", courier / "node.key", free_port(), courier / "courier.toml"
        )
        if sandbox.landlock_version():
            deny = ["--deny", str(self.folder / "guards")]
            command = [sys.executable, "-m", "silosynth.deploy.sandbox", *deny, "--", *command]
        self._processes.start(
            f"node-{silo}", command, **QUIET, FLWR_HOME=str(courier / "flower"), TMPDIR=str(courier / "tmp")
        )

    def kill_guard(self, silo: str) -> None:
        self._processes.stop(f"guard-{silo}", signal.SIGKILL)

    def kill(self, silo: str) -> None:
        """A silo that vanishes: no farewell, no flush."""
        self._processes.stop(f"node-{silo}", signal.SIGKILL)
        self.kill_guard(silo)

    def submit(self, run: Mapping[str, Any], bundle: Path = BUNDLE) -> Path:
        """Write run.toml and hand the bundle to Flower; returns the run's folder."""
        runs = self.folder / "runs"
        runs.mkdir(exist_ok=True)
        folder = runs / str(len(list(runs.iterdir())) + 1)
        folder.mkdir()
        _write_toml(folder / "run.toml", run)
        shutil.copy(self.folder / "server" / "server.toml", folder)
        self.flwr.run(bundle, folder)
        return folder

    def close(self) -> None:
        shutil.rmtree(self._sockets, ignore_errors=True)

    def _write_server(self) -> None:
        server = self.folder / "server"
        server.mkdir(parents=True, mode=0o700)
        self._write_ca(server)
        write_identity(server, "server", *self._authority.issue("server", ["localhost", LOOPBACK], server=True))
        identity = {"ca": "ca.crt", "certificate": "server.crt", "key": "server.key"}
        absolute = {name: str(server / file) for name, file in identity.items()}
        _write_toml(server / "server.toml", {"exchange": {"host": LOOPBACK, **absolute}})

    def _write_ca(self, folder: Path) -> None:
        (folder / "ca.crt").write_bytes(self._authority.certificate.public_bytes(Encoding.PEM))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def _listening(address: str) -> bool:
    host, port = address.rsplit(":", 1)
    with socket.socket() as probe:
        probe.settimeout(1.0)
        if probe.connect_ex((host, int(port))) == 0:
            return True
    time.sleep(0.05)
    return False


def _write_toml(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(tomli_w.dumps(content))
