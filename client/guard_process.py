"""The guard as a process: puts records, ledger, mechanisms and service together and serves until told to stop.

python -m silosynth.client.guard_process --config silo.toml
"""

from __future__ import annotations

import argparse
import ctypes
import logging
import signal
import sys
import threading
from pathlib import Path

from silosynth.client.config import SiloConfig, load_silo
from silosynth.client.guard.containment import contained
from silosynth.client.guard.entropy import SystemEntropy
from silosynth.client.guard.guard import Guard
from silosynth.client.guard.identity import load_or_create
from silosynth.client.guard.ledger import Ledger
from silosynth.client.guard.service import GuardServer
from silosynth.client.mechanisms import MECHANISMS
from silosynth.common.datasets import load_records
from silosynth.common.errors import SilosynthError

_PR_SET_DUMPABLE = 4


@contained(SilosynthError)
def serve(config_path: Path) -> int:
    """Serve the guard of `config_path` until SIGTERM or SIGINT; 0, or a SilosynthError if it cannot start or go on."""
    _forbid_inspection()
    config = load_silo(config_path)
    ledger = Ledger.open(config.guard.ledger, config.silo.name, load_or_create(config.guard.key))
    stop = threading.Event()
    try:
        guard = _guard(config, config_path.parent, ledger, stop)
        server = GuardServer(guard, config.guard.address)
        _heed_signals(stop)
        print(f"guard ready {server.address}", flush=True)
        stop.wait()
        server.stop()
        if guard.rolled_back is not None:
            raise guard.rolled_back
    finally:
        ledger.close()
    return 0


def _guard(config: SiloConfig, folder: Path, ledger: Ledger, stop: threading.Event) -> Guard:
    records = load_records(config.data, folder)
    guard = Guard(config, records, ledger, MECHANISMS, SystemEntropy(), on_rollback=stop.set)
    guard.budget()  # accounting a long ledger takes seconds the first time: not at the courier's expense
    return guard


def _heed_signals(stop: threading.Event) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())


def _forbid_inspection() -> None:
    """No other process of the same user may trace this one or read its memory; no core dump shows records."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def main() -> int:
    parser = argparse.ArgumentParser(prog="guard", description="The one process of a silo that reads records.")
    parser.add_argument("--config", type=Path, required=True, help="the silo's silo.toml")
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        return serve(parser.parse_args().config)
    except SilosynthError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
