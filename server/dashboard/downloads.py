"""A whole release as one ZIP file, made while it is sent: memory stays small, nothing is written."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

from silosynth.common.publication.signature import MANIFEST, SIGNATURE
from silosynth.server.dashboard.sources import Sources
from silosynth.server.releases.entries import Entry

_CHUNK_BYTES = 1 << 18


class _Sink(io.RawIOBase):
    """What the archive is written to, and taken out of again, piece by piece."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._pieces.append(bytes(data))
        return len(data)

    def taken(self) -> bytes:
        taken, self._pieces = b"".join(self._pieces), []
        return taken


def zipped(sources: Sources, entry: Entry) -> Iterator[bytes]:
    """The folder as it was published. Pictures and arrays are compressed already, so nothing is compressed again."""
    sink, folder = _Sink(), f"{entry.name}-{entry.version}"
    with zipfile.ZipFile(cast(IO[bytes], sink), "w", zipfile.ZIP_STORED) as archive:
        for name, path in _files(sources, entry):
            with path.open("rb") as source, archive.open(f"{folder}/{name}", "w", force_zip64=True) as target:
                while data := source.read(_CHUNK_BYTES):
                    target.write(data)
                    yield sink.taken()
    yield sink.taken()


def _files(sources: Sources, entry: Entry) -> Iterator[tuple[str, Path]]:
    manifest = sources.manifest_path(entry)
    yield MANIFEST, manifest
    yield SIGNATURE, manifest.with_name(SIGNATURE)
    for name in sources.manifest(entry).files:
        yield name, sources.file(entry, name)
