"""One compose file for a server and N silos, made of those that real servers and sites are given.

Each silo has a network of its own, which ends at the server; the guards have none.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from silosynth.common.errors import ConfigError

SERVER_HOST = "server"  # what couriers dial
MOST_SILOS = 24  # an engine hands out about thirty networks unless it is told otherwise
_TEMPLATES = Path(__file__).parent.parent
_OFTEN = "5s"  # a simulation is watched while it starts
_ONE_THREAD = {"OMP_NUM_THREADS": "1"}  # many parts share this machine

Service = dict[str, Any]


def sim_compose(silos: Sequence[str]) -> dict[str, Any]:
    if len(silos) > MOST_SILOS:
        raise ConfigError(f"at most {MOST_SILOS} silos have a network of their own here: try `--engine process`")
    networks = {"front": {}, **{silo: {"internal": True} for silo in silos}}
    services = _server_services(silos)
    for silo in silos:
        services |= _silo_services(silo)
    return {"services": services, "networks": networks}


def write_compose(path: Path, silos: Sequence[str]) -> None:
    words = "# Written by `silosynth sim` from deploy/server/compose.yml and deploy/silo/compose.yml.\n"
    path.write_text(words + yaml.dump(sim_compose(silos), Dumper=_Plain, sort_keys=False))


def _server_services(silos: Sequence[str]) -> dict[str, Service]:
    services = _template("server")
    for service in services.values():
        _adapt(service, "federation/server")
    services["address"]["networks"] = {"front": {}} | {silo: {"aliases": [SERVER_HOST]} for silo in silos}
    services["address"]["ports"] = ["127.0.0.1:${DASHBOARD_PORT}:9097"]
    return services


def _silo_services(silo: str) -> dict[str, Service]:
    guard, courier = _template("silo").values()
    for service in (guard, courier):
        _adapt(service, f"federation/kits/{silo}")
        service["healthcheck"] = {"interval": _OFTEN}
    courier["depends_on"], courier["networks"] = [f"guard-{silo}"], [silo]
    return {f"guard-{silo}": guard, f"courier-{silo}": courier}


def _template(kind: str) -> dict[str, Service]:
    services: dict[str, Service] = yaml.safe_load((_TEMPLATES / kind / "compose.yml").read_text())["services"]
    return copy.deepcopy(services)


def _adapt(service: Service, folder: str) -> None:
    """The folder a template's paths start at is one of many here."""
    rooted = [
        volume.replace("./", f"./{folder}/").replace(".:/", f"./{folder}:/") for volume in service.get("volumes", [])
    ]
    service["volumes"] = rooted
    service["environment"] = dict(_ONE_THREAD)
    if "healthcheck" in service:
        service["healthcheck"]["interval"] = _OFTEN


class _Plain(yaml.SafeDumper):
    """Without anchors: every service is shown whole."""

    def ignore_aliases(self, data: object) -> bool:
        return True
