"""Does a part of a federation answer? For containers' health checks, which run often: standard library only.

python -m silosynth.deploy.healthy guard|courier KIT
python -m silosynth.deploy.healthy superlink|coordinator|catalog|dashboard SERVER
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from silosynth.deploy.addresses import listening


def _toml(path: Path) -> Any:
    return tomllib.loads(path.read_text())


def _guard(kit: Path) -> list[str]:
    return [_anchored(_toml(kit / "guard/silo.toml")["guard"]["address"], kit / "guard")]


def _courier(kit: Path) -> list[str]:
    """It is of use as long as it reaches both whom it goes between."""
    courier = _toml(kit / "courier/courier.toml")
    return [_anchored(courier["guard"], kit / "courier"), courier["server"]["fleet"]]


def _superlink(server: Path) -> list[str]:
    flower = _toml(server / "server.toml")["flower"]
    return [flower["fleet"], flower["control"]]


def _coordinator(server: Path) -> list[str]:
    return [_toml(server / "server.toml")["flower"]["control"]]


def _catalog(server: Path) -> list[str]:
    catalog = _toml(server / "server.toml")["catalog"]
    return [f"{catalog['host']}:{catalog['port']}", f"{catalog['host']}:{catalog['consumer_port']}"]


def _dashboard(server: Path) -> list[str]:
    return [f"127.0.0.1:{_toml(server / 'server.toml')['dashboard']['port']}"]


ADDRESSES: Mapping[str, Callable[[Path], list[str]]] = {
    "guard": _guard,
    "courier": _courier,
    "superlink": _superlink,
    "coordinator": _coordinator,
    "catalog": _catalog,
    "dashboard": _dashboard,
}


def silent(part: str, folder: Path) -> list[str]:
    """The addresses at which nobody answers, of those that this part needs."""
    return [address for address in ADDRESSES[part](folder) if not listening(address)]


def _anchored(address: str, folder: Path) -> str:
    """As the parts themselves take a relative path of a socket: from the folder of the TOML file."""
    return f"unix:{folder / address.removeprefix('unix:')}" if address.startswith("unix:") else address


if __name__ == "__main__":
    if missing := silent(sys.argv[1], Path(sys.argv[2])):
        sys.exit(f"nobody answers at {', '.join(missing)}")
