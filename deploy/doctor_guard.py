"""The guard's side: records, policy, budget, ledger, socket. Nothing of the records is shown but what is declared."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import grpc

from silosynth.client.config import SiloConfig
from silosynth.client.guard.containment import contained
from silosynth.client.guard.identity import load_or_create
from silosynth.client.guard.ledger import Ledger
from silosynth.client.guard.policy import check_names
from silosynth.client.mechanisms import MECHANISMS
from silosynth.common.datasets import Records, load_records
from silosynth.common.errors import ConfigError, SilosynthError
from silosynth.deploy import site
from silosynth.deploy.addresses import listening
from silosynth.deploy.findings import Finding, ok, problem, too_open, warning
from silosynth.deploy.kits import Kit
from silosynth.protos.v1 import guard_pb2
from silosynth.protos.v1.guard_pb2_grpc import GuardStub

_ENOUGH_BYTES, _TOO_FEW_BYTES = 1_000_000_000, 50_000_000
_LARGE_DELTA = 1e-3


def examine_guard(kit: Kit, config: SiloConfig) -> Iterator[Finding]:
    yield too_open("guard folder", kit.guard, "700") or ok("guard folder", str(kit.guard))
    yield _data(kit, config)
    yield from _exposure(kit, config)
    yield _policy(config)
    yield _budget(config)
    yield _ledger(config)
    yield _disk(config)
    yield _serving(config)


def _data(kit: Kit, config: SiloConfig) -> Finding:
    try:
        records = _load(kit, config)
    except SilosynthError as error:
        return problem("data", str(error), "correct [data] in silo.toml, or the records")
    schema = records.schema
    return ok("data", f"records of shape {schema.shape} in {schema.classes} declared classes can be read")


@contained(SilosynthError)
def _load(kit: Kit, config: SiloConfig) -> Records:
    return load_records(config.data, kit.guard)


def _exposure(kit: Kit, config: SiloConfig) -> Iterator[Finding]:
    """Who else could read the records: the courier, or other users."""
    try:
        site.private_folders(kit)
    except ConfigError as error:
        yield problem("courier kept out", str(error), "move them, and correct silo.toml")
    path = config.data.path and kit.guard / config.data.path.expanduser()
    if path and path.exists() and path.stat().st_mode & 0o004 and kit.guard.resolve() not in path.resolve().parents:
        text = f"every user of this machine may read {path}"
        yield warning("data", text, f"chmod o-rwx {path}, unless a folder above it is closed")


def _policy(config: SiloConfig) -> Finding:
    policy = config.policy
    try:
        check_names(policy, MECHANISMS)
    except ConfigError as error:
        return problem("policy", str(error), "correct policy.mechanisms in silo.toml")
    if policy.consent == "deny" or not policy.mechanisms:
        text = "nothing will leave: the policy denies every query, as it does unless told otherwise"
        fix = 'if you want to take part, set consent = "auto" and list mechanisms under [policy] in silo.toml'
        return warning("policy", text, fix)
    return ok("policy", f"answers {', '.join(policy.mechanisms)}, consent {policy.consent}")


def _budget(config: SiloConfig) -> Finding:
    budget = config.budget
    if math.isinf(budget.epsilon):
        return warning(
            "budget", "epsilon = inf: there is no privacy", "set a finite epsilon unless the data are public"
        )
    if budget.delta >= _LARGE_DELTA:
        text = f"delta = {budget.delta:g} lets single records out with that probability"
        return warning("budget", text, "choose delta far below one over the number of records, such as 1e-6")
    return ok("budget", f"epsilon = {budget.epsilon:g}, delta = {budget.delta:g} in total, for ever")


def _ledger(config: SiloConfig) -> Finding:
    """Open it as the guard would, but never create or repair anything."""
    ledger, key = config.guard.ledger, config.guard.key
    if not ledger.exists() and not key.exists():
        return _first_start(ledger.parent)
    if not ledger.exists():
        text = f"{key} exists but {ledger} does not: a guard started now would have forgotten what was spent"
        return problem("ledger", text, "restore the newest copy of the ledger; only if there never was one, go on")
    if not key.exists():
        text = f"{ledger} exists but the key that signed it, {key}, does not"
        return problem("ledger", text, "restore the key from the backup of the guard's folder")
    try:
        Ledger.open(ledger, config.silo.name, load_or_create(key)).close()
    except SilosynthError as error:
        return problem(
            "ledger", str(error), "the guard refuses to start until this is settled; nothing is lost by that"
        )
    return ok("ledger", f"{ledger}: every entry verified, can be written; back it up")


def _first_start(folder: Path) -> Finding:
    if not os.access(folder, os.W_OK | os.X_OK):
        return problem("ledger", f"cannot be created in {folder}", f"make {folder} a folder this user can write to")
    return ok("ledger", "will begin at the guard's first start; back it up from then on")


def _disk(config: SiloConfig) -> Finding:
    folder = next(folder for folder in config.guard.ledger.parents if folder.exists())
    free = shutil.disk_usage(folder).free
    text, fix = (
        f"{free / 1e9:.1f} GB free for the ledger",
        f"make room on the disk of {folder}: a full disk stops all answers",
    )
    if free < _TOO_FEW_BYTES:
        return problem("disk", text, fix)
    return warning("disk", text, fix) if free < _ENOUGH_BYTES else ok("disk", text)


def _serving(config: SiloConfig) -> Finding:
    address = config.guard.address
    if not listening(address):
        return ok("guard", "not running at the moment: silosynth silo run starts it")
    try:
        with grpc.insecure_channel(address) as channel:
            description = GuardStub(channel).Describe(guard_pb2.DescribeRequest(), timeout=5.0)
    except grpc.RpcError:
        return problem("guard", f"what listens at {address} is no guard", "stop it, or choose another guard.address")
    if description.silo != config.silo.name:
        text = f"the guard at {address} is that of {description.silo}"
        return problem("guard", text, "stop it, or choose another guard.address in silo.toml and courier.toml")
    return ok("guard", f"running at {address}")
