"""`silosynth silo doctor`: everything a site's administrator can get wrong, and how to put it right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from rich.table import Table
from rich.text import Text

from silosynth.client.config import CourierConfig, SiloConfig, load_courier, load_silo, socket_path
from silosynth.common.config import Section
from silosynth.common.errors import ConfigError
from silosynth.deploy.doctor_guard import examine_guard
from silosynth.deploy.doctor_identity import examine_identity
from silosynth.deploy.doctor_ledger import examine_ledger
from silosynth.deploy.doctor_machine import examine_machine
from silosynth.deploy.doctor_network import examine_network
from silosynth.deploy.findings import Finding, State, ok, problem
from silosynth.deploy.kits import Kit

Config = TypeVar("Config", bound=Section)
_COLOURS = {State.OK: "green", State.WARNING: "yellow", State.PROBLEM: "red"}
_ADVICE = {
    "data: ": "fill in path and classes under [data] in silo.toml",
    "budget": "fill in epsilon and delta under [budget] in silo.toml",
    "too long for a Unix socket": "move the kit to a folder with a shorter path, or set guard.address elsewhere",
    "unknown key": "remove or correct the misspelt key",
    "no such file": "point --kit at the folder you were sent: it holds guard/ and courier/",
}


def examine(kit: Kit) -> Iterator[Finding]:
    """Every finding, from the machine to the server, in the order in which one would look."""
    yield from examine_machine()
    courier = _loaded("courier.toml", load_courier, kit.courier_toml)
    silo = _loaded("silo.toml", load_silo, kit.silo_toml)
    for name, config in (("courier.toml", courier), ("silo.toml", silo)):
        yield config if isinstance(config, Finding) else ok(name, f"read, configuration {config.digest()[:12]}")
    if isinstance(courier, CourierConfig) and isinstance(silo, SiloConfig):
        yield from _disagreements(courier, silo)
    if isinstance(silo, SiloConfig):
        yield from _as_far_as_allowed(examine_guard(kit, silo))
        yield from _as_far_as_allowed(examine_ledger(silo))
    if isinstance(courier, CourierConfig):
        identity = list(_as_far_as_allowed(examine_identity(courier)))
        yield from identity
        if healthy(identity):
            yield from examine_network(courier)


def _as_far_as_allowed(findings: Iterator[Finding]) -> Iterator[Finding]:
    """A folder that this user may not enter ends an examination, not the doctor."""
    try:
        yield from findings
    except PermissionError as error:
        yield problem("files", str(error), "run the doctor as the user who runs the guard and the courier")


def healthy(findings: list[Finding]) -> bool:
    return all(finding.state is not State.PROBLEM for finding in findings)


def as_table(findings: list[Finding]) -> Table:
    table = Table("check", "state", "what was found", "what to do")
    for finding in findings:
        state = Text(finding.state, style=_COLOURS[finding.state])
        table.add_row(finding.check, state, Text(finding.says), Text(finding.fix))
    return table


def as_document(kit: Kit, findings: list[Finding]) -> dict[str, Any]:
    return {"kit": str(kit.folder), "ok": healthy(findings), "findings": [asdict(finding) for finding in findings]}


def _loaded(name: str, load: Callable[[Path], Config], path: Path) -> Config | Finding:
    try:
        return load(path)
    except ConfigError as error:
        message = str(error)
        advice = "; ".join(fix for sign, fix in _ADVICE.items() if sign in message)
        return problem(name, message, advice or f"correct {path}; a kit as delivered shows how it should look")


def _disagreements(courier: CourierConfig, silo: SiloConfig) -> Iterator[Finding]:
    """The two files must speak of one silo and one socket."""
    if courier.silo != silo.silo.name:
        text = f"courier.toml is of {courier.silo}, silo.toml of {silo.silo.name}"
        yield problem("names", text, "use the two folders of one kit")
    ends = [_end(courier.guard), _end(silo.guard.address)]
    if ends[0] != ends[1]:
        text = f"the guard listens at {ends[1]}, the courier dials {ends[0]}"
        yield problem("socket", text, "let `guard` in courier.toml name the address of [guard] in silo.toml")


def _end(address: str) -> str:
    path = socket_path(address)
    return address if path is None else str(path.resolve())
