"""Keeps a simulated federation's processes running in the background: what the folder describes, and nothing else.

python -m silosynth.deploy.sim.host --folder FOLDER. A file named like a silo in FOLDER/down keeps that silo away. What
runs is told in FOLDER/running.json. Only one host at a time: it holds a lock.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import NoReturn

from rich.console import Console

from silosynth.common.errors import SilosynthError
from silosynth.deploy.addresses import listening
from silosynth.deploy.federation import ONE_THREAD, LocalFederation
from silosynth.deploy.processes import Processes
from silosynth.deploy.server_folder import ServerFolder
from silosynth.deploy.supervision import ServerSupervisor

LOCK, DOWN, RUNNING = "host.lock", "down", "running.json"
SERVER_PROCESSES = {"superlink": "superlink", "coordinator": "superexec", "catalog": "catalog"}
_LOOK_SECONDS, _RESTART_SECONDS = 0.2, 5.0


class Host:
    def __init__(self, folder: Path, processes: Processes, onlookers: Processes, console: Console) -> None:
        self._folder, self._processes = folder, processes
        self._federation = LocalFederation(folder, processes)
        server = ServerFolder(folder / "federation/server")
        self._supervisor = ServerSupervisor(server, processes, onlookers, console)
        self._not_before: dict[str, float] = {}

    def serve(self) -> NoReturn:
        self._supervisor.start(**ONE_THREAD)
        while True:
            self._look_after_server()
            for silo in self._silos():
                self._look_after(silo)
            self._tell()
            time.sleep(_LOOK_SECONDS)

    def _silos(self) -> set[str]:
        """Those listed, and those that were until now."""
        running = {name.partition("-")[2] for name in self._processes.children if name not in SERVER_PROCESSES.values()}
        return running | set(self._federation.silos)

    def _wanted(self, name: str) -> bool:
        return not (self._folder / DOWN / name).exists()

    def _look_after_server(self) -> None:
        resting = {process for part, process in SERVER_PROCESSES.items() if not self._wanted(part)}
        for name in resting & set(self._processes.children):
            self._processes.stop(name, signal.SIGKILL)
        self._supervisor.keep(resting)

    def _look_after(self, silo: str) -> None:
        wanted = silo in self._federation.silos and self._wanted(silo)
        for name, start in self._starts(silo).items():
            if not wanted and name in self._processes.children:
                self._processes.stop(name, signal.SIGKILL)
            elif wanted and name not in self._processes.alive():
                self._start(name, start)

    def _start(self, name: str, start: Callable[[], None]) -> None:
        """One that ends by itself is started again, though not at once: what ails it may pass."""
        if time.monotonic() < self._not_before.get(name, 0.0):
            return
        if name in self._processes.children:
            self._processes.stop(name)
        self._not_before[name] = time.monotonic() + _RESTART_SECONDS
        start()

    def _starts(self, silo: str) -> dict[str, Callable[[], None]]:
        federation = self._federation
        return {
            f"guard-{silo}": partial(federation.start_guard, silo),
            f"courier-{silo}": partial(federation.start_node, silo),
            f"puller-{silo}": partial(federation.start_puller, silo),
        }

    def _tell(self) -> None:
        """A silo runs when its guard answers."""
        alive = self._processes.alive()
        pids = {name: self._processes.children[name].process.pid for name in alive}
        silos = [silo for silo in self._federation.silos if listening(self._federation.guard_address(silo))]
        scratch = self._folder / f".{RUNNING}"
        scratch.write_text(json.dumps({"processes": pids, "silos": silos}))
        scratch.replace(self._folder / RUNNING)

    def close(self) -> None:
        self._federation.close()


def be_the_only_one(folder: Path) -> None:
    """Until this process is gone: nobody closes the descriptor before, so who sees no lock sees no host either."""
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.ftruncate(lock, 0)
    os.write(lock, str(os.getpid()).encode())


def hosting(folder: Path) -> int | None:
    """The process id of the host of this folder, if there is one."""
    with contextlib.suppress(FileNotFoundError), (folder / LOCK).open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return int(lock.read() or 0) or None
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    folder = parser.parse_args().folder
    if os.fork():
        os._exit(0)  # whoever started this goes on: the host outlives him
    os.setsid()
    signal.signal(signal.SIGTERM, _interrupt)
    console = Console(stderr=True)
    logs = folder / "logs"
    be_the_only_one(folder)
    with Processes(logs) as processes, Processes(logs) as onlookers:
        host = Host(folder, processes, onlookers, console)
        try:
            host.serve()
        except SilosynthError as error:
            console.print(str(error), markup=False)
            return error.exit_code
        except KeyboardInterrupt:
            pass  # `sim down`
        finally:
            (folder / RUNNING).unlink(missing_ok=True)
            host.close()
    return 0


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
