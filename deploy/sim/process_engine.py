"""A simulated federation by processes: a host in the background keeps them, and this steers it through files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from silosynth.common.errors import ConfigError, RunFailed
from silosynth.deploy import federation
from silosynth.deploy.kits import FederationFolder
from silosynth.deploy.sim.engine import Part, SimFolder
from silosynth.deploy.sim.host import DOWN, RUNNING, SERVER_PROCESSES, hosting
from silosynth.server.config import RunConfig

_PATIENCE_SECONDS, _POLL_SECONDS = 300.0, 0.1


@dataclass(frozen=True)
class ProcessEngine:
    home: SimFolder

    def create(self) -> FederationFolder:
        return federation.local_federation(self._folder)

    def guard_address(self, silo: str) -> str:
        return federation.guard_address(self._folder, silo)

    def server_path(self, path: Path) -> str:
        return str(path)

    def up(self) -> dict[str, float]:
        for mark in (self._folder / DOWN).glob("*"):
            mark.unlink()
        began, healthy = time.monotonic(), dict[str, float]()
        if hosting(self._folder) is None:
            self._start_host()

        def all_answer() -> bool:
            for name in self._answering() - healthy.keys():
                healthy[name] = time.monotonic() - began
            return healthy.keys() >= set(self._names())

        self._wait_until(all_answer, "the federation")
        return {SERVER_PROCESSES.get(name, f"guard-{name}"): seconds for name, seconds in healthy.items()}

    def submit(self, run: RunConfig) -> Path:
        return self.home.server.submit(run, os.environ)

    def dashboard(self, visitor: str) -> str:
        return self.home.server.config().dashboard_address

    def parts(self) -> list[Part]:
        processes = self._running()["processes"]
        return [Part(name, "running", _memory(pid)) for name, pid in sorted(processes.items())]

    def kill(self, name: str) -> None:
        self._check(name)
        (self._folder / DOWN).mkdir(exist_ok=True)
        (self._folder / DOWN / name).touch()
        self._wait_until(lambda: not self._processes_of(name), f"the end of {name}")

    def revive(self, name: str) -> None:
        self._check(name)
        (self._folder / DOWN / name).unlink(missing_ok=True)
        self._wait_until(lambda: name in self._answering(), name)

    def log(self, name: str) -> str:
        self._check(name)
        wanted = [SERVER_PROCESSES[name]] if name in SERVER_PROCESSES else _processes_of_silo(name)
        files = [self._folder / "logs" / f"{process}.log" for process in wanted]
        return "\n".join(f"== {file.stem} ==\n{file.read_text(errors='replace')}" for file in files if file.exists())

    def down(self) -> None:
        pid = hosting(self._folder)
        if pid is not None:
            os.kill(pid, signal.SIGTERM)
            while hosting(self._folder) is not None:
                time.sleep(_POLL_SECONDS)

    @property
    def _folder(self) -> Path:
        return self.home.folder

    def _names(self) -> list[str]:
        return [*SERVER_PROCESSES, *self.home.silos()]

    def _check(self, name: str) -> None:
        if name not in self._names():
            raise ConfigError(f"there is no {name}; there are {', '.join(self._names())}")
        if hosting(self._folder) is None:
            raise ConfigError("this federation is not running: start it with `silosynth sim up`")

    def _start_host(self) -> None:
        (self._folder / RUNNING).unlink(missing_ok=True)
        logs = self._folder / "logs"
        logs.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "silosynth.deploy.sim.host", "--folder", str(self._folder)]
        with (logs / "host.log").open("ab") as output:
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        ends = time.monotonic() + _PATIENCE_SECONDS
        while hosting(self._folder) is None and time.monotonic() < ends:
            time.sleep(_POLL_SECONDS)

    def _running(self) -> dict[str, Any]:
        file = self._folder / RUNNING
        return dict(json.loads(file.read_text())) if file.exists() else {"processes": {}, "silos": []}

    def _answering(self) -> set[str]:
        running = self._running()
        server = {part for part, process in SERVER_PROCESSES.items() if process in running["processes"]}
        return server | set(running["silos"])

    def _processes_of(self, name: str) -> set[str]:
        wanted = {SERVER_PROCESSES[name]} if name in SERVER_PROCESSES else set(_processes_of_silo(name))
        return wanted & set(self._running()["processes"])

    def _wait_until(self, so: Callable[[], bool], what: str) -> None:
        ends = time.monotonic() + _PATIENCE_SECONDS
        while not so():
            if hosting(self._folder) is None:
                words = (self._folder / "logs/host.log").read_text(errors="replace")[-2000:]
                raise RunFailed(f"the processes in {self._folder} have ended:\n{words}")
            if time.monotonic() > ends:
                raise RunFailed(f"{what}: still waiting after {_PATIENCE_SECONDS:g} s; see {self._folder / 'logs'}")
            time.sleep(_POLL_SECONDS)


def _processes_of_silo(silo: str) -> list[str]:
    return [f"{kind}-{silo}" for kind in ("guard", "courier", "puller")]


def _memory(session: int) -> int:
    """Resident bytes of a process and of all it has started (Linux; 0 elsewhere)."""
    total = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if os.getsid(int(folder.name)) == session:
                total += int((folder / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except OSError:
            continue
    return total
