"""Keeping the processes of a server or a silo in the foreground: watched, and ended together."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from rich.console import Console

from silosynth.client.config import load_courier, load_silo
from silosynth.common.errors import ConfigError, RunFailed, SilosynthError
from silosynth.deploy import site
from silosynth.deploy.addresses import listening
from silosynth.deploy.kits import Kit
from silosynth.deploy.processes import Processes
from silosynth.deploy.server_folder import ServerFolder

_WATCH_SECONDS, _RETRY_SECONDS = 0.5, 10.0
_SHORTEST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 2.0, 300.0
_MAX_RESTARTS, _RESTART_WINDOW_SECONDS = 5, 600.0


def serve_federation(server: ServerFolder, console: Console, ready: Callable[[], None]) -> None:
    """Serve until interrupted."""
    starts = {
        "superlink": server.start_superlink,
        "superexec": server.start_superexec,
        "catalog": server.start_catalog,
    }
    logs = server.folder / "logs"
    with Processes(logs) as processes, Processes(logs) as onlookers:
        admission, restarts = _Admission(server, console), _Restarts(console)
        dashboard = _Dashboard(server, onlookers, console)
        server.start(processes)
        ready()
        while True:
            for name in starts.keys() - processes.alive():
                restarts.clear(processes, name)
                starts[name](processes)
            admission.keep_current(processes)
            dashboard.keep_alive()
            time.sleep(_WATCH_SECONDS)


class _Admission:
    """Whenever server.toml changes, Flower's register of nodes is brought in line with it."""

    def __init__(self, server: ServerFolder, console: Console) -> None:
        self._server, self._console = server, console
        self._seen, self._not_before = self._version(), 0.0

    def keep_current(self, processes: Processes) -> None:
        version = self._version()
        if version == self._seen or time.monotonic() < self._not_before:
            return
        try:
            self._server.admit(processes.environment())
        except SilosynthError as error:
            self._not_before = time.monotonic() + _RETRY_SECONDS
            text = f"server.toml changed, but who is admitted did not; trying again in {_RETRY_SECONDS:g} s: {error}"
            self._console.print(text, style="red", markup=False)
        else:
            self._seen = version
            self._console.print(f"Silos are now: {', '.join(silo.name for silo in self._server.config().silos)}")

    def _version(self) -> int:
        return (self._server.folder / "server.toml").stat().st_mtime_ns


class _Restarts:
    """A process that keeps dying needs a person, not another start."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._times: deque[float] = deque(maxlen=_MAX_RESTARTS)

    def clear(self, processes: Processes, name: str) -> None:
        """Say aloud that a process has died, and make room for the next."""
        child, now = processes.children[name], time.monotonic()
        if len(self._times) == _MAX_RESTARTS and now - self._times[0] < _RESTART_WINDOW_SECONDS:
            raise RunFailed(f"{name} has died {_MAX_RESTARTS} times in a short while; its log ends:\n{child.tail()}")
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
        if "dashboard" in self._processes.children:
            log = self._processes.children["dashboard"].log
            self._console.print(f"The dashboard ended: starting it again; its log is {log}", style="yellow")
            self._processes.stop("dashboard")
        self._server.start_dashboard(self._processes)
        self._not_before, self._pause = now + self._pause, min(2 * self._pause, _LONGEST_PAUSE_SECONDS)


def serve_silo(kit: Kit, console: Console) -> int:
    """Run guard and courier until interrupted or until one ends, which ends the other too; returns the exit code."""
    site.require_landlock()
    private, address = site.private_folders(kit), load_silo(kit.silo_toml).guard.address
    if listening(address):
        raise ConfigError(f"a guard is serving at {address} already: stop it first")
    with Processes(kit.logs) as processes:
        try:
            site.start_guard(processes, kit)
            console.print(f"Guard: starting, logs in {kit.logs}", soft_wrap=True)
            site.wait_for_guard(processes, kit)
            site.start_courier(processes, kit, private)
            site.start_puller(processes, kit, private)
            console.print(f"Guard: ready. Courier: dialling {load_courier(kit.courier_toml).server.fleet}")
            _watch(processes)
        except RunFailed as error:
            console.print(f"Both are ended: {error}", markup=False, highlight=False, soft_wrap=True)
            guard_code = processes.children["guard"].process.poll()
            return guard_code if guard_code and guard_code > 0 else error.exit_code


def serve_courier(kit: Kit, console: Console) -> None:
    """Run the courier alone until interrupted. As a user who can open silo.toml it needs the sandbox all the same."""
    private: list[Path] = []
    if os.access(kit.silo_toml, os.R_OK):
        site.require_landlock()
        private = site.private_folders(kit)
    with Processes(kit.courier / "logs") as processes:
        site.start_courier(processes, kit, private)
        site.start_puller(processes, kit, private)
        console.print(f"Courier: dialling {load_courier(kit.courier_toml).server.fleet}")
        _watch(processes)


def _watch(processes: Processes) -> NoReturn:
    while True:
        processes.check()
        time.sleep(_WATCH_SECONDS)
