"""A federation's server folder at work: Flower on top of it, the silos it admits, the runs submitted to it.

server.toml, certificate, nodes/   as provisioned
flower/, flwr/, secret             Flower's state, our home as its client, what its two processes share
runs/<number>/                     run.toml, journal, release
logs/                              of Flower's processes
"""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import tomli_w

from silosynth.common.config import Section
from silosynth.common.errors import ConfigError, RunFailed
from silosynth.deploy.addresses import listening
from silosynth.deploy.flower import BUNDLE, QUIET, Flwr, SuperLink
from silosynth.deploy.processes import Processes
from silosynth.deploy.provision import write_secret
from silosynth.server.config import RunConfig, ServerConfig, load_server


@dataclass(frozen=True)
class ServerFolder:
    folder: Path

    def config(self) -> ServerConfig:
        """As server.toml says now: silos come and go while the server runs."""
        return load_server(self.folder / "server.toml")

    def start(self, processes: Processes) -> None:
        """Start Flower and admit the silos of server.toml."""
        for address in (self._link().fleet, self._link().control):
            if listening(address):
                raise ConfigError(f"something listens on {address} already: is another server running here?")
        self.start_superlink(processes)
        self._start_process(processes, "superexec", self._link().executor_command())
        self.admit(processes.environment())

    def start_superlink(self, processes: Processes) -> None:
        """Returns when it listens; an earlier one's state is taken up."""
        link, identity = self._link(), self.config().exchange
        command = link.command(identity.certificate, identity.key, self._database)
        self._start_process(processes, "superlink", command)
        for address in (link.fleet, link.control):
            processes.wait_until(partial(listening, address), "Flower's SuperLink")

    def flwr(self, environment: Mapping[str, str]) -> Flwr:
        return Flwr.configured(self.folder / "flwr", self._link(), environment)

    def admit(self, environment: Mapping[str, str]) -> None:
        """Make Flower's register of nodes what server.toml lists: no more, no less."""
        flwr = self.flwr(environment)
        known = json.loads(self._register.read_text()) if self._register.exists() else {}
        wanted = {silo.name: silo.node_key for silo in self.config().silos}
        keys = {name: path.read_text() for name, path in wanted.items()}
        stale = [name for name, node in known.items() if keys.get(name) != node["key"]]
        for name in stale:
            flwr.unregister(known.pop(name)["id"])
        ids = flwr.register({name: path for name, path in wanted.items() if name not in known})
        known |= {name: {"id": node_id, "key": keys[name]} for name, node_id in ids.items()}
        self._register.write_text(json.dumps(known))

    def submit(self, run: RunConfig, environment: Mapping[str, str], bundle: Path = BUNDLE) -> Path:
        """Hand a run to Flower; returns the run's folder. What is written there is what the run was made of."""
        config = self.config()
        config.certificates(run.federation.silos)  # an unknown silo is told before anything is written
        folder = self._new_run_folder()
        try:
            write_toml(folder / "run.toml", run)
            write_toml(folder / "server.toml", config)
            (folder / "flower-run-id").write_text(self.flwr(environment).run(bundle, folder))
        except RunFailed:
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

    @property
    def _register(self) -> Path:
        """Flower tells no names of the nodes it knows, so we keep them, beside the database they belong to."""
        return self._home / "nodes.json"

    def _link(self) -> SuperLink:
        config, secret = self.config(), self.folder / "secret"
        if not secret.exists():
            write_secret(secret, secrets.token_bytes(32))
        return SuperLink(config.flower.fleet, config.flower.control, config.exchange.ca, secret)

    def _start_process(self, processes: Processes, name: str, command: list[str]) -> None:
        self._home.mkdir(mode=0o700, exist_ok=True)
        processes.start(name, command, **QUIET, FLWR_HOME=str(self._home))

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


def write_toml(path: Path, section: Section) -> None:
    """The effective configuration, defaults included; TOML has no null, so what is None is left out."""
    path.write_text(tomli_w.dumps(section.model_dump(mode="json", exclude_none=True)))
