"""gRPC options both sides share: bounded messages, live connections, mutual TLS."""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import grpc

CHUNK_BYTES = 1 << 20
MAX_MESSAGE_BYTES = 2 * CHUNK_BYTES

Options = list[tuple[str, int]]
Part = TypeVar("Part")

OPTIONS: Options = [
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # A peer that vanished without a word (power, firewall) is noticed within half a minute.
    ("grpc.keepalive_time_ms", 15_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.so_reuseport", 0),
]


def client_credentials(ca: Path, certificate: Path, key: Path) -> grpc.ChannelCredentials:
    """Verify the server by the federation's CA and show our own certificate."""
    return grpc.ssl_channel_credentials(
        root_certificates=ca.read_bytes(),
        private_key=key.read_bytes(),
        certificate_chain=certificate.read_bytes(),
    )


def server_credentials(ca: Path, certificate: Path, key: Path) -> grpc.ServerCredentials:
    """Refuse, in the handshake, every client without a certificate of the federation's CA."""
    return grpc.ssl_server_credentials(
        [(key.read_bytes(), certificate.read_bytes())],
        root_certificates=ca.read_bytes(),
        require_client_auth=True,
    )


def public_server_credentials(certificate: Path, key: Path) -> grpc.ServerCredentials:
    """TLS without certificates of clients: whoever uses it must ask them who they are in another way."""
    return grpc.ssl_server_credentials([(key.read_bytes(), certificate.read_bytes())])


def peer_name(context: grpc.ServicerContext) -> str:
    """The common name of the client's verified certificate; empty where there is none."""
    names = [bytes(name) for name in context.auth_context().get("x509_common_name", [])]
    return names[0].decode() if len(names) == 1 else ""


def peer_certificate(context: grpc.ServicerContext) -> str:
    """SHA-256 of the client's verified certificate, in hexadecimal; empty where there is none."""
    pem = [bytes(certificate) for certificate in context.auth_context().get("x509_pem_cert", [])]
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem[0].decode())).hexdigest() if len(pem) == 1 else ""


def until_cut(parts: Iterator[Part]) -> Iterator[Part]:
    """The parts of a stream; one that breaks ends early. For receivers who can tell that by what they received."""
    try:
        yield from parts
    except grpc.RpcError:
        return
