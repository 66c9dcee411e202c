"""A simulated federation by containers: compose starts and removes them, the engine's API watches them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from silosynth.common.errors import ConfigError, RunFailed
from silosynth.deploy.addresses import free_port
from silosynth.deploy.kits import GUARD_SOCKET, FederationFolder, Place
from silosynth.deploy.server_folder import write_toml
from silosynth.deploy.sim.compose_file import SERVER_HOST, write_compose
from silosynth.deploy.sim.engine import Part, SimFolder
from silosynth.server.config import RunConfig

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.containers import Container

_PATIENCE_SECONDS, _POLL_SECONDS = 600.0, 0.5
_NOBODY = 10001  # in the images; owns the folders where a simulation is run by root
_SETTINGS = ("SILO_USER", "SILO_RECORDS", "SERVER_USER", "SILOSYNTH_VERSION", "DASHBOARD_PORT")
_MOUNTED_SERVER = Path("/server")


def connect() -> DockerClient:
    """The engine that DOCKER_HOST names, or this machine's."""
    try:
        import docker
    except ImportError as error:
        raise ConfigError(
            "the docker package is missing: pip install 'silosynth[docker]', or --engine process"
        ) from error
    try:
        client = docker.from_env(timeout=600)
        client.ping()
    except docker.errors.DockerException as error:
        raise ConfigError(f"no container engine answers: start one, or use --engine process ({error})") from error
    return client


@dataclass(frozen=True)
class DockerEngine:
    home: SimFolder
    client: DockerClient = field(default_factory=connect)

    def create(self) -> FederationFolder:
        return FederationFolder.create(self.home.federation.folder, Place((SERVER_HOST,)))

    def guard_address(self, silo: str) -> str:
        return GUARD_SOCKET

    def server_path(self, path: Path) -> str:
        return str(_MOUNTED_SERVER / path.relative_to(self.home.server.folder))

    def up(self) -> dict[str, float]:
        self._write_files()
        began = time.monotonic()
        self._compose("up", "--detach", "--no-recreate", "--remove-orphans")
        self._join_networks()
        return self._wait_until_healthy(began)

    def submit(self, run: RunConfig) -> Path:
        """As the server's people do: with the command, in the server's own container."""
        toml = self.home.server.folder / "sim-run.toml"
        write_toml(toml, run)
        where = (self.server_path(toml), "--server", str(_MOUNTED_SERVER))
        submitted = json.loads(self._silosynth("run", "start", *where, "--format", "json"))
        return self.home.server.runs / str(submitted["run"])

    def dashboard(self, visitor: str) -> str:
        """Not on the container's loopback, hence with login."""
        token = self._silosynth("server", "grant", visitor, "--dashboard", "--folder", str(_MOUNTED_SERVER))
        return f"https://127.0.0.1:{dotenv(self.home.folder / '.env')['DASHBOARD_PORT']} token {token.strip()}"

    def parts(self) -> list[Part]:
        return [Part(_service(found), _state(found), _memory(found)) for found in self._containers()]

    def kill(self, name: str) -> None:
        for container in self._named(name):
            if container.status == "running":
                container.kill()

    def revive(self, name: str) -> None:
        for container in self._named(name):
            container.start()
        self._wait_until_healthy(time.monotonic(), only={_service(container) for container in self._named(name)})

    def log(self, name: str) -> str:
        said = {_service(found): found.logs().decode(errors="replace") for found in self._named(name)}
        return "\n".join(f"== {service} ==\n{words}" for service, words in said.items())

    def down(self) -> None:
        self._compose("down", "--volumes", "--remove-orphans")

    @property
    def project(self) -> str:
        mark = hashlib.sha256(str(self.home.folder.resolve()).encode()).hexdigest()[:10]
        return f"silosynth-{mark}"

    def _silosynth(self, *arguments: str) -> str:
        """What a command of the server's people prints, in one of its containers."""
        code, (output, errors) = self.container("coordinator").exec_run(["silosynth", *arguments], demux=True)
        if code != 0:
            raise RunFailed(f"silosynth {' '.join(arguments)} failed: {(errors or b'').decode(errors='replace')}")
        return str((output or b"").decode())

    def _write_files(self) -> None:
        user, group = (os.getuid(), os.getgid()) if os.getuid() else (_NOBODY, _NOBODY)
        if not os.getuid():
            _give(self.home.federation.folder, user, group)
        write_compose(self.home.folder / "compose.yml", self.home.silos())
        port = dotenv(self.home.folder / ".env").get("DASHBOARD_PORT", str(free_port()))
        settings = {"SILOSYNTH_VERSION": version("silosynth"), "DASHBOARD_PORT": port}
        settings |= dict.fromkeys(("SILO_USER", "SERVER_USER"), f"{user}:{group}")
        (self.home.folder / ".env").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))

    def _compose(self, *arguments: str) -> None:
        files = [self.home.folder / "compose.yml", self.home.folder / "compose.override.yml"]
        chosen = [option for file in files if file.exists() for option in ("-f", str(file))]
        command = [*_compose_program(), "-p", self.project, *chosen, *arguments]
        environment = {name: value for name, value in os.environ.items() if name not in _SETTINGS}
        done = subprocess.run(command, cwd=self.home.folder, env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            raise RunFailed(f"{' '.join(command)} failed:\n{done.stderr.strip()[-3000:]}")

    def _join_networks(self) -> None:
        """Silos that came later: the server's address must not be made anew, since its parts live in it."""
        address = self.container("address")
        joined = address.attrs["NetworkSettings"]["Networks"]
        for network in self.client.networks.list(filters={"label": f"com.docker.compose.project={self.project}"}):
            if network.name not in joined:
                network.connect(address, aliases=[SERVER_HOST])

    def _wait_until_healthy(self, began: float, only: set[str] | None = None) -> dict[str, float]:
        healthy: dict[str, float] = {}
        while True:
            waiting = {}
            for container in self._containers():
                service, state = _service(container), _state(container)
                if state in ("healthy", "running"):
                    healthy.setdefault(service, time.monotonic() - began)
                elif only is None or service in only:
                    waiting[service] = state
            if not waiting:
                return healthy
            if time.monotonic() - began > _PATIENCE_SECONDS:
                raise RunFailed(f"not healthy after {_PATIENCE_SECONDS:g} s: {waiting}; see `silosynth sim logs`")
            time.sleep(_POLL_SECONDS)

    def _containers(self) -> list[Container]:
        label = f"com.docker.compose.project={self.project}"
        found = self.client.containers.list(all=True, filters={"label": label}, ignore_removed=True)
        return sorted(found, key=_service)

    def container(self, service: str) -> Container:
        return next(found for found in self._containers() if _service(found) == service)

    def _named(self, name: str) -> list[Container]:
        """Guard and courier of a silo, or one part of the server."""
        wanted = {name, f"guard-{name}", f"courier-{name}"}
        found = [container for container in self._containers() if _service(container) in wanted]
        if not found:
            services = (
                ", ".join(_service(container) for container in self._containers()) or "none: see `silosynth sim up`"
            )
            raise ConfigError(f"there is no {name}; there are {services}")
        return found


def dotenv(path: Path) -> dict[str, str]:
    """As `_write_files` writes it."""
    lines = path.read_text().splitlines() if path.exists() else []
    return dict(line.split("=", 1) for line in lines)


def _compose_program() -> list[str]:
    docker = shutil.which("docker")
    if docker and subprocess.run([docker, "compose", "version"], capture_output=True).returncode == 0:
        return [docker, "compose"]
    if alone := shutil.which("docker-compose"):
        return [alone]
    raise ConfigError("docker compose is missing: install its plugin or docker-compose, or use --engine process")


def _service(container: Container) -> str:
    return str(container.labels["com.docker.compose.service"])


def _state(container: Container) -> str:
    """healthy, unhealthy, starting; for those that have no check, what the engine says."""
    state: Mapping[str, Any] = container.attrs["State"] if isinstance(container.attrs["State"], dict) else {}
    if not state.get("Running", container.status == "running"):
        return str(container.status)
    return str(state["Health"]["Status"]) if "Health" in state else "running"


def _memory(container: Container) -> int:
    if container.status != "running":
        return 0
    return int(container.stats(stream=False, one_shot=True).get("memory_stats", {}).get("usage", 0))


def _give(folder: Path, user: int, group: int) -> None:
    for path in (folder, *folder.rglob("*")):
        if path.lstat().st_uid != user:
            os.chown(path, user, group, follow_symlinks=False)
