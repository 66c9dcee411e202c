"""The ledger: can it be opened, does it hold, what terms does it remember, is there room for more?"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from silosynth.client.config import SiloConfig
from silosynth.client.guard.adoption import check_epoch
from silosynth.client.guard.identity import load_existing
from silosynth.client.guard.inspection import Inspection
from silosynth.client.guard.ledger import Ledger
from silosynth.common.errors import ConfigError, SilosynthError
from silosynth.deploy import vault
from silosynth.deploy.findings import Finding, ok, problem, warning

_ENOUGH_BYTES, _TOO_FEW_BYTES = 1_000_000_000, 50_000_000


def examine_ledger(config: SiloConfig) -> Iterator[Finding]:
    """Opens it as the guard would, but never creates or repairs anything."""
    ledger, key = config.guard.ledger, config.guard.key
    if not ledger.exists() and not key.exists():
        yield _first_start(ledger.parent)
    elif not ledger.exists():
        text = f"{key} exists but {ledger} does not: a guard started now would have forgotten what was spent"
        yield problem("ledger", text, "restore the newest copy of the ledger; only if there never was one, go on")
    elif not key.exists():
        text = f"{ledger} exists but the key that signed it, {key}, does not"
        yield problem("ledger", text, "restore the key from the backup of the guard's folder")
    else:
        yield from _history(config)
    yield _disk(ledger)


def _history(config: SiloConfig) -> Iterator[Finding]:
    try:
        with closing(Ledger.open(config.guard.ledger, config.silo.name, load_existing(config.guard.key))) as ledger:
            yield ok("ledger", f"{config.guard.ledger}: every entry verified, can be written; back it up")
            check_epoch(config, ledger)
        looser = vault.adoption(Inspection.of(config))["looser"]
    except ConfigError as error:
        yield problem("dataset", str(error), "correct [silo] in silo.toml")
    except SilosynthError as error:
        yield problem("ledger", str(error), "the guard refuses to start until this is settled; nothing is lost by that")
    else:
        if looser:
            text = f"silo.toml is looser than what was adopted before, which still holds: {'; '.join(looser)}"
            yield warning("terms", text, "silosynth silo adopt adopts silo.toml; the guard never does so by itself")


def _first_start(folder: Path) -> Finding:
    if not os.access(folder, os.W_OK | os.X_OK):
        return problem("ledger", f"cannot be created in {folder}", f"make {folder} a folder this user can write to")
    return ok("ledger", "will begin at the guard's first start; back it up from then on")


def _disk(ledger: Path) -> Finding:
    folder = next(folder for folder in ledger.parents if folder.exists())
    free = shutil.disk_usage(folder).free
    text = f"{free / 1e9:.1f} GB free for the ledger"
    fix = f"make room on the disk of {folder}: a full disk stops all answers"
    if free < _TOO_FEW_BYTES:
        return problem("disk", text, fix)
    return warning("disk", text, fix) if free < _ENOUGH_BYTES else ok("disk", text)
