"""Keeping the processes of a silo in the foreground: watched, and ended together."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NoReturn

from rich.console import Console

from silosynth.client.config import load_courier, load_silo
from silosynth.common.errors import ConfigError, RunFailed
from silosynth.deploy import site
from silosynth.deploy.addresses import listening
from silosynth.deploy.kits import Kit
from silosynth.deploy.processes import Processes

_WATCH_SECONDS = 0.5


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
    with Processes() as processes:
        site.start_courier(processes, kit, private)
        site.start_puller(processes, kit, private)
        console.print(f"Courier: dialling {load_courier(kit.courier_toml).server.fleet}")
        _watch(processes)


def _watch(processes: Processes) -> NoReturn:
    while True:
        processes.check()
        time.sleep(_WATCH_SECONDS)
