"""Hosts and ports: taken apart, tried, and found free."""

from __future__ import annotations

import ipaddress
import socket

from silosynth.common.errors import ConfigError

LOOPBACK = "127.0.0.1"


def split(address: str, default_port: int | None = None) -> tuple[str, int]:
    """Host, IPv6 without its brackets, and port of "host:port", "[address]:port" or, with a default, "host"."""
    if _is_ip(address) and default_port is not None:
        return address, default_port
    host, colon, port = address.rpartition(":")
    if not colon and default_port is not None:
        host, port = address, str(default_port)
    if not host or not port.isdecimal() or int(port) > 0xFFFF:
        raise ConfigError(f"{address}: not of the form HOST:PORT")
    return host.removeprefix("[").removesuffix("]"), int(port)


def bracketed(host: str) -> str:
    """As an IPv6 host must be written before a port."""
    return f"[{host}]" if ":" in host else host


def all_interfaces(public_host: str) -> str:
    """Where to listen so that `public_host` leads here; loopback stays on loopback."""
    if not _is_ip(public_host):
        return "0.0.0.0" if public_host != "localhost" else LOOPBACK  # noqa: S104 (TLS and node keys guard it)
    address = ipaddress.ip_address(public_host)
    if address.is_loopback:
        return bracketed(public_host)
    return "[::]" if address.version == 6 else "0.0.0.0"  # noqa: S104


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def listening(address: str) -> bool:
    """Whether somebody accepts connections at "unix:PATH" or "host:port"."""
    if address.startswith("unix:"):
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(address.removeprefix("unix:")) == 0
    host, port = split(address)
    try:
        socket.create_connection((host, port), timeout=1.0).close()
    except OSError:
        return False
    return True


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
