"""Can the silo reach the server, and is it the right one? Only handshakes are made; nothing is asked or told."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator

from silosynth.client.config import CourierConfig
from silosynth.deploy.addresses import split
from silosynth.deploy.findings import Finding, ok, problem, warning

_SECONDS = 5.0
_FIREWALL = "let this machine make outbound TCP connections to {address}; see the kit's README"


def examine_network(config: CourierConfig) -> Iterator[Finding]:
    host, _ = split(config.server.fleet)
    try:
        socket.getaddrinfo(host, None)
    except OSError as error:
        text = f"{host} cannot be resolved: {error.strerror or error}"
        yield problem("server name", text, "check server.fleet in courier.toml, DNS and /etc/hosts")
        return
    yield ok("server name", f"{host} can be resolved")
    yield _fleet(config)
    yield _exchange(config)


def _fleet(config: CourierConfig) -> Finding:
    address = config.server.fleet
    try:
        _handshake(address, _context(config))
    except ssl.SSLError as error:
        return _distrust("fleet port", address, error)
    except ConnectionRefusedError:
        text = f"{address} can be reached but does not listen"
        return warning("fleet port", text, "ask whoever runs the server whether it is up, and on this port")
    except OSError as error:
        text = f"no way to {address}: {error.strerror or error}"
        return problem("fleet port", text, _FIREWALL.format(address=address))
    return ok("fleet port", f"{address} answers with a certificate of our authority")


def _exchange(config: CourierConfig) -> Finding:
    address = config.server.exchange
    if split(address)[1] == 0:
        return ok("exchange port", "each invitation names it")
    context = _context(config)
    try:
        context.load_cert_chain(config.certificate, config.key)
        _handshake(address, context)
    except ssl.SSLError as error:
        return _distrust("exchange port", address, error)
    except ConnectionRefusedError:
        return ok("exchange port", f"{address} can be reached but does not listen: normal, it does so during runs only")
    except OSError as error:
        text = f"no way to {address}: {error.strerror or error}"
        return problem("exchange port", text, _FIREWALL.format(address=address))
    return ok("exchange port", f"{address} accepts our certificate: a run is under way")


def _context(config: CourierConfig) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=config.ca)
    context.set_alpn_protocols(["h2"])  # without it gRPC hangs up
    return context


def _handshake(address: str, context: ssl.SSLContext) -> None:
    """A server that rejects our certificate says so only after its own handshake, in place of the first bytes."""
    host, port = split(address)
    with (
        socket.create_connection((host, port), timeout=_SECONDS) as plain,
        context.wrap_socket(plain, server_hostname=host) as secured,
        contextlib.suppress(TimeoutError),
    ):
        secured.recv(1)


def _distrust(check: str, address: str, error: ssl.SSLError) -> Finding:
    if isinstance(error, ssl.SSLCertVerificationError):
        text = f"{address} shows a certificate we must not trust: {error.verify_message}"
        return problem(check, text, "check the address in courier.toml and that ca.crt is of this federation")
    text = f"{address} does not complete TLS: {error.reason or error}"
    return problem(check, text, "is this the right port? The other side must speak TLS and know our certificate")
