"""The catalog service: finished releases, told and streamed to silos and consumers, to nobody else.

Two doors lead to the same service. Silos come through mutual TLS and are known by the certificate that server.toml
lists; consumers come through TLS and show a token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from silosynth.common import channels
from silosynth.common.errors import ConfigError
from silosynth.common.publication.names import ReleaseName
from silosynth.protos.v1 import catalog_pb2
from silosynth.protos.v1.catalog_pb2_grpc import CatalogServicer, add_CatalogServicer_to_server
from silosynth.server.config import ServerConfig
from silosynth.server.releases.entries import Entry
from silosynth.server.releases.store import Store
from silosynth.server.releases.tokens import Tokens

_CHUNK_BYTES = 1 << 18  # what a cut connection loses at most, beside what was on the way
_THREADS = 32  # each stream holds one while it lasts; who comes later waits
_BEARER = "Bearer "


class Catalog(CatalogServicer):
    """`config` is asked anew for every call: silos are added and removed while the catalog serves."""

    def __init__(self, store: Store, tokens: Tokens, config: Callable[[], ServerConfig]) -> None:
        self._store, self._tokens, self._config = store, tokens, config

    def List(  # noqa: N802 (the names are the wire contract's)
        self, request: catalog_pb2.ListReleases, context: grpc.ServicerContext
    ) -> Iterator[catalog_pb2.CatalogEntry]:
        self._admit(context)
        for entry in self._store.entries():
            yield entry.to_proto(self._store.withdrawn(entry.release))

    def Describe(  # noqa: N802
        self, request: catalog_pb2.ReleaseId, context: grpc.ServicerContext
    ) -> catalog_pb2.ReleaseDetails:
        self._admit(context)
        entry = self._find(request, context)
        return catalog_pb2.ReleaseDetails(
            entry=entry.to_proto(self._store.withdrawn(entry.release)),
            signature=self._store.signature(entry.release),
            manifest_size=entry.manifest_size,
            readme=self._store.text(entry.release, "README.md"),
            privacy_card=self._store.text(entry.release, "privacy-card.yaml"),
        )

    def Fetch(  # noqa: N802
        self, request: catalog_pb2.FetchRelease, context: grpc.ServicerContext
    ) -> Iterator[catalog_pb2.ReleaseChunk]:
        self._admit(context)
        entry = self._find(request.release, context)
        if (reason := self._store.withdrawn(entry.release)) is not None:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, reason)
        if request.sha256 != entry.sha256 or request.offset > entry.size:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "this is not the release the earlier part came from")
        offset = request.offset
        for data in _chunks(self._store.parts(entry.release), offset):
            yield catalog_pb2.ReleaseChunk(offset=offset, data=data)
            offset += len(data)

    def _admit(self, context: grpc.ServicerContext) -> None:
        """A silo that is listed, or the bearer of a token; strangers learn nothing, not even names."""
        certificate = channels.peer_certificate(context)
        if certificate:
            known = any(silo.certificate == certificate for silo in self._config().silos)
        else:
            known = self._tokens.holder(_token(context)) is not None
        if not known:
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "neither a silo of this federation nor a valid token")

    def _find(self, wanted: catalog_pb2.ReleaseId, context: grpc.ServicerContext) -> Entry:
        try:
            return self._store.entry(ReleaseName(wanted.name, wanted.version))
        except ConfigError as error:
            context.abort(grpc.StatusCode.NOT_FOUND, str(error))


def serve_catalog(catalog: Catalog, config: ServerConfig) -> tuple[grpc.Server, int, int]:
    """Started; its two ports, for silos and for consumers."""
    settings, identity = config.catalog, config.exchange
    server = grpc.server(ThreadPoolExecutor(_THREADS), options=channels.OPTIONS)
    add_CatalogServicer_to_server(catalog, server)
    doors = (
        (settings.port, channels.server_credentials(identity.ca, identity.certificate, identity.key)),
        (settings.consumer_port, channels.public_server_credentials(identity.certificate, identity.key)),
    )
    ports = [_bind(server, f"{settings.host}:{port}", credentials) for port, credentials in doors]
    server.start()
    return server, ports[0], ports[1]


def _bind(server: grpc.Server, address: str, credentials: grpc.ServerCredentials) -> int:
    try:
        return server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise ConfigError(
            f"catalog: cannot listen on {address}: another program holds the port, or the host is not this machine's"
        ) from error


def _token(context: grpc.ServicerContext) -> str:
    shown = [str(value) for key, value in context.invocation_metadata() if key == "authorization"]
    return shown[0].removeprefix(_BEARER) if len(shown) == 1 and shown[0].startswith(_BEARER) else ""


def _chunks(parts: Iterator[tuple[Path, int]], offset: int) -> Iterator[bytes]:
    """The bytes of all parts one after the other, from `offset` on, in pieces of one size: memory stays constant."""
    gathered: list[bytes] = []
    room = _CHUNK_BYTES
    for path, size in parts:
        if offset >= size:
            offset -= size
            continue
        with path.open("rb") as file:
            file.seek(offset)
            offset = 0
            while data := file.read(room):
                gathered.append(data)
                room -= len(data)
                if room == 0:
                    yield b"".join(gathered)
                    gathered, room = [], _CHUNK_BYTES
    if gathered:
        yield b"".join(gathered)
