"""Putting a streamed release together on disk: a manifest, then its files, byte after byte, from wherever it was cut.

What lies on disk is the only state. After a cut it is measured again, so neither a crash nor a half-written file can
end in a release that was not verified.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from silosynth.common.errors import VerificationFailed
from silosynth.common.publication.files import FileFacts
from silosynth.common.publication.signature import MANIFEST, SIGNATURE, Signature
from silosynth.common.publication.verification import read_signed_manifest

_BLOCK_BYTES = 1 << 20


class Assembly:
    """A release that grows in `folder`; `offset` is how much of the stream is there."""

    def __init__(self, folder: Path, signature: bytes, manifest_size: int, publisher: str) -> None:
        self.offset = 0
        self._folder, self._publisher = folder, publisher
        sha256 = Signature.from_bytes(signature).manifest_sha256
        folder.mkdir(parents=True, exist_ok=True)
        (folder / SIGNATURE).write_bytes(signature)
        self._parts = self._all_parts(FileFacts(sha256=sha256, bytes=manifest_size))
        self._part = self._next_unfinished(resume=True)

    @property
    def complete(self) -> bool:
        return self._part is None

    def take(self, offset: int, data: bytes) -> None:
        if offset != self.offset:
            raise VerificationFailed(f"the catalog sent bytes from {offset} on, those from {self.offset} were due")
        rest = memoryview(data)
        while rest:
            if self._part is None:
                raise VerificationFailed("the catalog sent more than the manifest names")
            written = self._part.write(rest)
            self.offset += written
            rest = rest[written:]
            if not self._part.missing:
                self._part.finish()
                self._part = self._next_unfinished(resume=False)

    def close(self) -> None:
        if self._part is not None:
            self._part.close()

    def _all_parts(self, manifest: FileFacts) -> Iterator[tuple[str, FileFacts]]:
        """The manifest first: once it is there and genuine, it tells what follows."""
        yield MANIFEST, manifest
        contents = [(self._folder / name).read_bytes() for name in (MANIFEST, SIGNATURE)]
        yield from read_signed_manifest(contents[0], contents[1], self._publisher).files.items()

    def _next_unfinished(self, resume: bool) -> _Part | None:
        """In a running stream every file begins anew, whatever an earlier attempt has left behind."""
        for name, facts in self._parts:
            part = _Part(self._folder, name, facts, resume)
            self.offset += part.found
            if part.missing:
                return part
            part.finish()
        return None


class _Part:
    """One file, from its first byte to its digest."""

    def __init__(self, folder: Path, name: str, facts: FileFacts, resume: bool) -> None:
        self._name, self._path, self._facts = name, folder / name, facts
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._digest = hashlib.sha256()
        usable = resume and self._path.exists() and self._path.stat().st_size <= facts.bytes
        self._file = self._path.open("r+b" if usable else "wb")
        while block := usable and self._file.read(_BLOCK_BYTES):
            self._digest.update(block)
        self.found = self._file.tell()
        self.missing = facts.bytes - self.found

    def write(self, data: memoryview) -> int:
        """As much of `data` as belongs to this file; returns how much that was."""
        mine = data[: self.missing]
        self._file.write(mine)
        self._digest.update(mine)
        self.missing -= len(mine)
        return len(mine)

    def finish(self) -> None:
        self.close()
        if self._digest.hexdigest() != self._facts.sha256:
            self._path.unlink()  # so that the next attempt fetches it again
            raise VerificationFailed(f"{self._name} did not arrive as the manifest says: pull again to fetch it anew")

    def close(self) -> None:
        self._file.close()
