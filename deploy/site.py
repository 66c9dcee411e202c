"""A silo's two processes, started from its kit: the guard, and the courier, which is kept out of what is private."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from silosynth.client.config import load_courier, load_silo
from silosynth.common.errors import ConfigError
from silosynth.deploy import sandbox
from silosynth.deploy.addresses import free_port, listening
from silosynth.deploy.flower import QUIET, supernode_command
from silosynth.deploy.kits import Kit
from silosynth.deploy.processes import Processes


def start_guard(processes: Processes, kit: Kit, name: str = "guard", **environment: str) -> None:
    command = [sys.executable, "-m", "silosynth.client.guard_process", "--config", str(kit.silo_toml)]
    processes.start(name, command, **environment)


def wait_for_guard(processes: Processes, kit: Kit) -> None:
    address = load_silo(kit.silo_toml).guard.address
    processes.wait_until(lambda: listening(address), f"the guard at {address}", seconds=600)


def start_courier(processes: Processes, kit: Kit, private: Sequence[Path], name: str = "courier") -> None:
    """A SuperNode; where the kernel has Landlock, neither it nor its client apps can open anything `private`."""
    config = load_courier(kit.courier_toml)
    for scratch in ("flower", "tmp"):
        (kit.courier / scratch).mkdir(exist_ok=True)
    command = supernode_command(config.server.fleet, config.ca, config.node_key, free_port(), kit.courier_toml)
    home = {"FLWR_HOME": str(kit.courier / "flower"), "TMPDIR": str(kit.courier / "tmp")}
    processes.start(name, _kept_out(private, command), **QUIET, **home)


def start_puller(processes: Processes, kit: Kit, private: Sequence[Path], name: str = "puller") -> None:
    """Where courier.toml says `pull = true`. It has no business with what is private, so it is kept out as well."""
    if not load_courier(kit.courier_toml).pull:
        return
    kit.releases.mkdir(exist_ok=True)
    arguments = ("--courier", str(kit.courier_toml), "--into", str(kit.releases))
    command = [sys.executable, "-m", "silosynth.client.releases.pulling", *arguments]
    processes.start(name, _kept_out(private, command))


def _kept_out(private: Sequence[Path], command: list[str]) -> list[str]:
    """The same command, unable to open anything `private`, where the kernel has Landlock."""
    if not private or not sandbox.landlock_version():
        return command
    denied = [argument for path in private for argument in ("--deny", str(path))]
    return [sys.executable, "-m", "silosynth.deploy.sandbox", *denied, "--", *command]


def private_folders(kit: Kit) -> list[Path]:
    """What the courier must not open: guard, records, ledger, key and logs. ConfigError if it needs one of them."""
    config = load_silo(kit.silo_toml)
    folders = [kit.guard, kit.logs, config.guard.ledger.parent, config.guard.key.parent]
    if config.data.path is not None:
        records = kit.guard / config.data.path.expanduser()
        folders.append(records if records.is_dir() else records.parent)  # labels may lie beside images
    private = sorted({folder.resolve() for folder in folders})
    for needed in (kit.courier, kit.releases, Path(sys.prefix), Path(sys.base_prefix)):
        for folder in private:
            if needed.resolve().is_relative_to(folder):
                raise ConfigError(
                    f"{folder} is private but holds {needed}: give records and ledger a folder of their own"
                )
    return private


def require_landlock() -> None:
    if not sandbox.landlock_version():
        raise ConfigError(
            "this kernel has no Landlock, and the courier runs code that the server ships: as the guard's user it "
            "could read the records. Run the two as two users: `silosynth silo guard` and `silosynth silo courier`"
        )
