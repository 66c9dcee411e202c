"""Talking to a catalog: what there is, and one release at a time, over however many connections it takes."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc

from silosynth.client.releases.access import Access
from silosynth.client.releases.assembly import Assembly
from silosynth.client.releases.shelf import Shelf
from silosynth.common import channels
from silosynth.common.errors import (
    CatalogUnavailable,
    ConfigError,
    PeerRejected,
    ReleaseWithdrawn,
    SilosynthError,
    VerificationFailed,
)
from silosynth.common.publication.manifest import Naming
from silosynth.common.publication.names import ReleaseName
from silosynth.common.publication.verification import verify_release
from silosynth.protos.v1 import catalog_pb2
from silosynth.protos.v1.catalog_pb2_grpc import CatalogStub

Progress = Callable[[int, int], None]
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0
_ANSWER_SECONDS = 30.0
_SPARE_BYTES = 64 << 20  # that a disk must have left beside the release
_WINDOW_BYTES = 4 << 20  # that may be on the way: left to itself, gRPC takes as much memory as a fast network fills
_OPTIONS = [*channels.OPTIONS, ("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", _WINDOW_BYTES)]
_HANDSHAKE_WORDS = ("CERTIFICATE_VERIFY_FAILED", "Ssl handshake failed", "SSL_ERROR_SSL", "Peer name")


class Catalog:
    """`patience`: how many seconds without any progress are tried before giving up."""

    def __init__(self, access: Access, patience: float = 60.0) -> None:
        self._access, self._patience = access, patience

    def releases(self) -> list[catalog_pb2.CatalogEntry]:
        with self._stub() as stub:
            listed = stub.List(catalog_pb2.ListReleases(), timeout=_ANSWER_SECONDS, metadata=self._access.metadata)
            return list(listed)

    def describe(self, release: ReleaseName) -> catalog_pb2.ReleaseDetails:
        with self._stub() as stub:
            wanted = catalog_pb2.ReleaseId(name=release.name, version=release.version)
            details: catalog_pb2.ReleaseDetails = stub.Describe(
                wanted, timeout=_ANSWER_SECONDS, metadata=self._access.metadata
            )
            return details

    def pull(self, release: ReleaseName, shelf: Shelf, progress: Progress = lambda done, total: None) -> Path:
        """Fetch, verify and put on the shelf; what an earlier attempt has fetched is taken up. Returns its folder."""
        if shelf.holds(release):
            return shelf.find(release)
        details, partial = self.describe(release), shelf.partial(release)
        _refuse_withdrawn(release, details.entry)
        _check_room(shelf.folder, details.entry.size)
        with _alone_in(partial):
            self._fetch(release, details, partial, progress)
            _check_name(release, partial, verify_release(partial, self._access.publisher).release)
            os.sync()  # a release on the shelf is a whole one, also after a power cut
            partial.rename(shelf.place(release))
        return shelf.place(release)

    def _fetch(
        self, release: ReleaseName, details: catalog_pb2.ReleaseDetails, folder: Path, progress: Progress
    ) -> None:
        """Dial until everything is there; patience is counted from the last byte that came."""
        reached, pause, last_news = -1, _FIRST_PAUSE, time.monotonic()
        while True:
            assembly = Assembly(folder, details.signature, details.manifest_size, self._access.publisher)
            if assembly.complete:
                return
            if assembly.offset > reached:
                reached, pause, last_news = assembly.offset, _FIRST_PAUSE, time.monotonic()
            try:
                self._stream(release, details.entry, assembly, progress)
            except CatalogUnavailable:
                if time.monotonic() - last_news > self._patience:
                    raise
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            finally:
                assembly.close()

    def _stream(
        self, release: ReleaseName, entry: catalog_pb2.CatalogEntry, assembly: Assembly, progress: Progress
    ) -> None:
        wanted = catalog_pb2.ReleaseId(name=release.name, version=release.version)
        request = catalog_pb2.FetchRelease(release=wanted, sha256=entry.sha256, offset=assembly.offset)
        with self._stub() as stub:
            for chunk in stub.Fetch(request, metadata=self._access.metadata):
                assembly.take(chunk.offset, chunk.data)
                progress(assembly.offset, entry.size)
        if not assembly.complete:
            raise VerificationFailed("the catalog ended the stream before the last file: pull again")

    @contextmanager
    def _stub(self) -> Iterator[CatalogStub]:
        access = self._access
        with grpc.secure_channel(access.address, access.credentials, options=_OPTIONS) as channel:
            try:
                yield CatalogStub(channel)
            except grpc.RpcError as error:
                raise _translated(error, access.address) from error


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Two that write into one folder would spoil it for each other."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise ConfigError(f"{folder} is being pulled by another process: wait for it") from error
    finally:
        os.close(descriptor)


def _translated(error: Any, address: str) -> SilosynthError:
    code, details = error.code(), str(error.details())
    if code in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
        return PeerRejected(f"the catalog at {address} does not know us: {details}. Ask its operator for access")
    if any(word in details for word in _HANDSHAKE_WORDS):
        return PeerRejected(f"{address} could not prove that it is the federation's server, or does not accept us")
    if code is grpc.StatusCode.FAILED_PRECONDITION:
        return ReleaseWithdrawn(f"taken back by its publisher: {details}")
    if code in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.INVALID_ARGUMENT):
        return ConfigError(f"the catalog at {address}: {details}")
    return CatalogUnavailable(f"the catalog at {address} does not answer ({code.name.lower()}): is its server running?")


def _refuse_withdrawn(release: ReleaseName, entry: catalog_pb2.CatalogEntry) -> None:
    if entry.HasField("withdrawn"):
        raise ReleaseWithdrawn(f"{release} was taken back by its publisher: {entry.withdrawn}")


def _check_room(folder: Path, size: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < size + _SPARE_BYTES:
        raise ConfigError(f"{folder}: {free} bytes are free, the release needs {size}: make room, or choose --into")


def _check_name(release: ReleaseName, folder: Path, naming: Naming) -> None:
    """A genuine release under another's name would be as good as a forged one."""
    if (naming.name, naming.version) != (release.name, release.version):
        shutil.rmtree(folder)
        raise VerificationFailed(f"the catalog sent {naming} for {release}")
