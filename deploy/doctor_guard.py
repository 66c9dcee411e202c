"""The guard's side: records, policy, budget, socket. Nothing of the records is shown but what is declared."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import grpc

from silosynth.client.config import SiloConfig
from silosynth.client.guard.containment import contained
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

_LARGE_DELTA = 1e-3


def examine_guard(kit: Kit, config: SiloConfig) -> Iterator[Finding]:
    yield too_open("guard folder", kit.guard, "700") or ok("guard folder", str(kit.guard))
    yield _data(kit, config)
    yield from _exposure(kit, config)
    yield _policy(config)
    yield _budget(config)
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
    path = config.data.path and (kit.guard / config.data.path.expanduser()).resolve()
    if path and path.exists() and _open_to_all(path):
        yield warning("data", f"every user of this machine may read {path}", f"chmod o-rwx {path}")


def _open_to_all(path: Path) -> bool:
    return bool(path.stat().st_mode & 0o004) and all(folder.stat().st_mode & 0o001 for folder in path.parents)


def _policy(config: SiloConfig) -> Finding:
    policy = config.policy
    try:
        check_names(policy, MECHANISMS)
    except ConfigError as error:
        return problem("policy", str(error), "correct [policy] in silo.toml")
    if policy.consent == "deny" or not policy.mechanisms:
        text = "nothing will leave: the policy denies every query, as it does unless told otherwise"
        fix = 'if you want to take part, set consent = "auto" and list mechanisms under [policy] in silo.toml'
        return warning("policy", text, fix)
    networks = f"backbones {', '.join(policy.backbones)}" if policy.backbones else "no backbones"
    return ok("policy", f"answers {', '.join(policy.mechanisms)} through {networks}, consent {policy.consent}")


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
