"""A federation's server folder at work: Flower on top of it, the silos it admits, the runs submitted to it.

server.toml, certificate, nodes/   as provisioned
flower/, flwr/, secret             Flower's state, our home as its client, what its two processes share
runs/<number>/                     run.toml, journal, images as they form, release
work/<configuration>/              where a run that was interrupted goes on when it is started again
publisher.key, store/, tokens/     who signs releases, all that were published, who may have them
dashboard-tokens/                  who may look at the dashboard from elsewhere
logs/                              of Flower's processes
"""

from __future__ import annotations

import secrets
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import tomli_w
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_public_key

from silosynth.common.config import Section
from silosynth.common.errors import ConfigError
from silosynth.deploy.addresses import listening
from silosynth.deploy.flower import BUNDLE, QUIET, Flwr, SuperLink, registered_nodes
from silosynth.deploy.processes import Processes
from silosynth.deploy.provision import write_secret
from silosynth.server.config import RunConfig, ServerConfig, load_server


@dataclass(frozen=True)
class Program:
    """What to start for one part of a server."""

    command: list[str]
    environment: Mapping[str, str]


@dataclass(frozen=True)
class ServerFolder:
    folder: Path

    def config(self) -> ServerConfig:
        """As server.toml says now: silos come and go while the server runs."""
        return load_server(self.folder / "server.toml")

    def version(self) -> int:
        """Another one whenever server.toml was written."""
        return (self.folder / "server.toml").stat().st_mtime_ns

    def start(self, processes: Processes, **environment: str) -> None:
        """Start Flower and admit the silos of server.toml; `environment` is added to the coordinators'."""
        for address in (self._link().fleet, self._link().control, *self._catalog_addresses()):
            if listening(address):
                raise ConfigError(f"something listens on {address} already: is another server running here?")
        self.start_superlink(processes)
        self.start_superexec(processes, **environment)
        self.start_catalog(processes)
        self.admit(processes.environment())

    def start_superlink(self, processes: Processes) -> None:
        """Returns when it listens; an earlier one's state is taken up."""
        self._start(processes, "superlink", self.superlink())
        for address in (self._link().fleet, self._link().control):
            processes.wait_until(partial(listening, address), "Flower's SuperLink")

    def start_superexec(self, processes: Processes, **environment: str) -> None:
        self._start(processes, "superexec", self.coordinator(), **environment)

    def start_catalog(self, processes: Processes) -> None:
        """Returns when silos and consumers can pull releases."""
        self._start(processes, "catalog", self.catalog())
        for address in self._catalog_addresses():
            processes.wait_until(partial(listening, address), "the catalog")

    def start_dashboard(self, processes: Processes) -> None:
        """Nobody waits for it."""
        module = "silosynth.server.dashboard.process"
        processes.start("dashboard", [sys.executable, "-m", module, "--folder", str(self.folder)])

    def superlink(self) -> Program:
        link, identity = self._link(), self.config().exchange
        if not link.secret.exists():
            write_secret(link.secret, secrets.token_bytes(32))
        return Program(link.command(identity.certificate, identity.key, self._database), self._flower_environment())

    def coordinator(self) -> Program:
        """Flower's SuperExec: it starts a coordinator for each run."""
        return Program(self._link().executor_command(), self._flower_environment())

    def catalog(self) -> Program:
        module = "silosynth.server.releases.catalog_process"
        return Program([sys.executable, "-m", module, "--folder", str(self.folder)], {})

    def _catalog_addresses(self) -> tuple[str, str]:
        catalog = self.config().catalog
        return f"{catalog.host}:{catalog.port}", f"{catalog.host}:{catalog.consumer_port}"

    def flwr(self, environment: Mapping[str, str]) -> Flwr:
        return Flwr.configured(self.folder / "flwr", self._link(), environment)

    def admit(self, environment: Mapping[str, str]) -> None:
        """Make Flower admit the nodes server.toml lists: no more, no less. A node once removed never returns."""
        flwr, admitted = self.flwr(environment), registered_nodes(self._database)
        wanted = {_public_pem(silo.node_key): silo for silo in self.config().silos}
        for key in admitted.keys() - wanted.keys():
            flwr.unregister(admitted[key])
        flwr.register({silo.name: silo.node_key for key, silo in wanted.items() if key not in admitted})

    def submit(self, run: RunConfig, environment: Mapping[str, str], bundle: Path = BUNDLE) -> Path:
        """Hand a run to Flower; returns the run's folder. What is written there is what the run was made of."""
        config = self.config()
        config.certificates(run.federation.silos)  # an unknown silo is told before anything is written
        folder = self._new_run_folder()
        try:
            write_toml(folder / "run.toml", run)
            write_toml(folder / "server.toml", config)
            (folder / "flower-run-id").write_text(self.flwr(environment).run(bundle, folder))
        except BaseException:  # an interrupt too: a run Flower does not know must not be listed
            shutil.rmtree(folder)
            raise
        return folder

    @property
    def runs(self) -> Path:
        return self.folder / "runs"

    @property
    def _home(self) -> Path:
        return self.folder / "flower"

    @property
    def _database(self) -> Path:
        return self._home / "state.db"

    def _link(self) -> SuperLink:
        config = self.config()
        return SuperLink(config.flower.fleet, config.flower.control, config.exchange.ca, self.folder / "secret")

    def _flower_environment(self) -> dict[str, str]:
        self._home.mkdir(mode=0o700, exist_ok=True)
        return {**QUIET, "FLWR_HOME": str(self._home)}

    def _start(self, processes: Processes, name: str, program: Program, **environment: str) -> None:
        processes.start(name, program.command, **program.environment, **environment)

    def _new_run_folder(self) -> Path:
        self.runs.mkdir(exist_ok=True)
        number = max((int(run.name) for run in self.runs.iterdir() if run.name.isdecimal()), default=0)
        while True:
            number += 1
            folder = self.runs / str(number)
            try:
                folder.mkdir()
            except FileExistsError:
                continue  # somebody else submits at this moment
            return folder


def _public_pem(path: Path) -> bytes:
    """A node's public key in the form in which Flower keeps it."""
    try:
        key = load_ssh_public_key(path.read_bytes())
    except (OSError, ValueError, UnsupportedAlgorithm) as error:
        raise ConfigError(f"{path}: not a node's public key: restore it from the silo's kit ({error})") from error
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def write_toml(path: Path, section: Section) -> None:
    """The effective configuration, defaults included; TOML has no null, so what is None is left out."""
    path.write_text(tomli_w.dumps(section.model_dump(mode="json", exclude_none=True)))
