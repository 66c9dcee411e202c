"""Keeping the processes of a server in the foreground: watched, started again, and ended together."""

from __future__ import annotations

import os
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import NoReturn

from rich.console import Console

from silosynth.common.errors import RunFailed, SilosynthError
from silosynth.deploy.metrics import serve_metrics
from silosynth.deploy.processes import Processes
from silosynth.deploy.server_folder import Program, ServerFolder

_WATCH_SECONDS, _RETRY_SECONDS = 0.5, 10.0
_SHORTEST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 2.0, 300.0
_MAX_RESTARTS, _RESTART_WINDOW_SECONDS = 5, 600.0

ADMISSION = "admission"
PARTS: Mapping[str, Callable[[ServerFolder], Program]] = {
    "superlink": ServerFolder.superlink,
    "coordinator": ServerFolder.coordinator,
    "catalog": ServerFolder.catalog,
}


def serve_federation(server: ServerFolder, console: Console, ready: Callable[[], None]) -> None:
    """Serve until interrupted."""
    logs = server.folder / "logs"
    with Processes(logs) as processes, Processes(logs) as onlookers:
        supervisor = ServerSupervisor(server, processes, onlookers, console)
        supervisor.start()
        serve_metrics(server, console)
        ready()
        while True:
            supervisor.keep()
            time.sleep(_WATCH_SECONDS)


class ServerSupervisor:
    """Starts a server's processes, and again those that die; `onlookers` are those without whom it can do."""

    def __init__(self, server: ServerFolder, processes: Processes, onlookers: Processes, console: Console) -> None:
        self._server, self._processes = server, processes
        self._admission, self._restarts = _Admission(server, console, server.version()), _Restarts(console)
        self._dashboard = _Dashboard(server, onlookers, console)
        self._environment: Mapping[str, str] = {}

    def start(self, **environment: str) -> None:
        """`environment` is added to the coordinators'."""
        self._environment = environment
        self._server.start(self._processes, **environment)

    def keep(self, resting: Collection[str] = ()) -> None:
        """Look after everything once; `resting` are processes that shall not run for now."""
        starts: dict[str, Callable[[Processes], None]] = {
            "superlink": self._server.start_superlink,
            "superexec": self._start_superexec,
            "catalog": self._server.start_catalog,
        }
        for name in starts.keys() - self._processes.alive() - set(resting):
            if name in self._processes.children:
                self._restarts.clear(self._processes, name)
            starts[name](self._processes)
        if not resting:
            self._admission.keep_current(self._processes.environment())
        self._dashboard.keep_alive()

    def _start_superexec(self, processes: Processes) -> None:
        self._server.start_superexec(processes, **self._environment)


def run_part(server: ServerFolder, part: str, console: Console) -> NoReturn:
    """Become one part of a server, for those whose orchestrator starts, watches and restarts each by itself."""
    _wait_for_folder(server, console)
    if part == ADMISSION:
        admission = _Admission(server, console, admitted=0)
        serve_metrics(server, console)
        while True:
            admission.keep_current(os.environ)
            time.sleep(_WATCH_SECONDS)
    program = PARTS[part](server)
    os.execvpe(program.command[0], program.command, {**os.environ, **program.environment})  # noqa: S606


def _wait_for_folder(server: ServerFolder, console: Console) -> None:
    """A volume may be mounted before anybody has put the folder there."""
    if not (server.folder / "server.toml").exists():
        console.print(f"Waiting for {server.folder / 'server.toml'}: bring the provisioned folder here", soft_wrap=True)
    while not (server.folder / "server.toml").exists():
        time.sleep(_WATCH_SECONDS)


class _Admission:
    """Whenever server.toml changes, Flower's register of nodes is brought in line with it."""

    def __init__(self, server: ServerFolder, console: Console, admitted: int) -> None:
        """`admitted` is the version of server.toml that Flower knows."""
        self._server, self._console = server, console
        self._seen, self._not_before = admitted, 0.0

    def keep_current(self, environment: Mapping[str, str]) -> None:
        version = self._server.version()
        if version == self._seen or time.monotonic() < self._not_before:
            return
        try:
            self._server.admit(environment)
        except (SilosynthError, sqlite3.OperationalError) as error:  # Flower may be starting, and have no database yet
            self._not_before = time.monotonic() + _RETRY_SECONDS
            text = f"Flower does not admit yet whom server.toml lists; trying again in {_RETRY_SECONDS:g} s: {error}"
            self._console.print(text, style="red", markup=False)
        else:
            self._seen = version
            self._console.print(f"Silos are now: {', '.join(silo.name for silo in self._server.config().silos)}")


class _Restarts:
    """A process that keeps dying needs a person, not another start."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._times: deque[float] = deque(maxlen=_MAX_RESTARTS)

    def clear(self, processes: Processes, name: str) -> None:
        """Say aloud that a process has died, and make room for the next."""
        child, now = processes.children[name], time.monotonic()
        if len(self._times) == _MAX_RESTARTS and now - self._times[0] < _RESTART_WINDOW_SECONDS:
            raise RunFailed(f"{name} has died {_MAX_RESTARTS} times in a short while; {child.last_words()}")
        self._times.append(now)
        code = child.process.returncode
        self._console.print(f"{name} ended with code {code}: starting it again; its log is {child.log}", style="yellow")
        processes.stop(name)


class _Dashboard:
    """Started again whenever it dies, ever more slowly: it only looks on, so its troubles must not end the server."""

    def __init__(self, server: ServerFolder, processes: Processes, console: Console) -> None:
        self._server, self._processes, self._console = server, processes, console
        self._not_before, self._pause = 0.0, _SHORTEST_PAUSE_SECONDS

    def keep_alive(self) -> None:
        now = time.monotonic()
        if self._processes.alive() or now < self._not_before:
            return
        if now - self._not_before > _LONGEST_PAUSE_SECONDS:  # it has lived long: this is no sickness
            self._pause = _SHORTEST_PAUSE_SECONDS
        if "dashboard" in self._processes.children:
            log = self._processes.children["dashboard"].log
            self._console.print(f"The dashboard ended: starting it again; its log is {log}", style="yellow")
            self._processes.stop("dashboard")
        self._server.start_dashboard(self._processes)
        self._not_before, self._pause = now + self._pause, min(2 * self._pause, _LONGEST_PAUSE_SECONDS)
