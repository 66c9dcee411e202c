"""The shelf: public files that queries name by digest, in a folder beside the ledger.

A courier fills it and is not trusted: it can deposit only what an allowed query waits for, only bytes of that very
digest, and never more than the shelf has room for. What is shipped with silosynth is always there.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

from silosynth.client.guard.private_file import create_private_file
from silosynth.common.errors import PolicyDenied, QueryError, SiloUnavailable, VerificationFailed
from silosynth.common.queries.base import MAX_ARTIFACTS, is_digest
from silosynth.common.shipped import shipped_files

MAX_ARTIFACT_BYTES = 1 << 28
_CAPACITY_BYTES = MAX_ARTIFACTS * MAX_ARTIFACT_BYTES  # whatever one query needs fits
_MOST_WANTED = 8 * MAX_ARTIFACTS


class Shelf:
    """Artifacts by digest; safe to use from many threads. Queries have checked all digests but that of a deposit."""

    def __init__(self, folder: Path, capacity: int = _CAPACITY_BYTES) -> None:
        self._folder, self._capacity = folder, capacity
        self._wanted: dict[str, None] = {}  # in the order in which they were first missed
        self._receiving = threading.Lock()  # one deposit at a time: what is unfinished is bounded too
        for unfinished in folder.glob(".*"):  # by a guard that was killed
            unfinished.unlink()

    @classmethod
    def beside(cls, ledger: Path) -> Shelf:
        return cls(ledger.with_name("artifacts"))

    def missing(self, digests: Iterable[str]) -> tuple[str, ...]:
        return tuple(digest for digest in digests if not self._path(digest).exists())

    def want(self, digests: Iterable[str]) -> None:
        """From now on these may be deposited."""
        for digest in digests:
            self._wanted[digest] = None
        for forgotten in list(self._wanted)[:-_MOST_WANTED]:
            self._wanted.pop(forgotten, None)

    def deposit(self, digest: str, chunks: Iterable[bytes]) -> None:
        """Take in one wanted artifact; it appears whole and verified, or not at all."""
        with self._receiving:
            if is_digest(digest) and not self.missing([digest]):
                return  # another courier was faster
            if digest not in self._wanted:
                raise PolicyDenied("no allowed query of this silo waits for this artifact: it is not taken in")
            try:
                create_private_file(self._folder / digest, _verified(digest, chunks))
                self._make_room()
            except OSError as error:
                raise SiloUnavailable(f"the artifact {digest} cannot be stored: {error.strerror}") from error
            self._wanted.pop(digest, None)

    def discard(self, digests: Iterable[str]) -> None:
        """What nobody will need again."""
        for digest in digests:
            (self._folder / digest).unlink(missing_ok=True)

    def read(self, digest: str) -> bytes:
        try:
            content = self._path(digest).read_bytes()
        except FileNotFoundError:
            raise absent(digest) from None
        if hashlib.sha256(content).hexdigest() != digest:  # the disk failed: better fetched anew
            (self._folder / digest).unlink(missing_ok=True)
            raise absent(digest)
        return content

    def _path(self, digest: str) -> Path:
        return shipped_files().get(digest, self._folder / digest)

    def _make_room(self) -> None:
        """Remove the oldest until the rest fits."""
        files = sorted(((file.stat(), file) for file in self._folder.iterdir()), key=lambda entry: entry[0].st_mtime_ns)
        excess = sum(status.st_size for status, _ in files) - self._capacity
        for status, file in files:
            if excess > 0:
                file.unlink()
                excess -= status.st_size


def absent(*digests: str) -> QueryError:
    return QueryError(
        f"this silo does not have what the query needs: {', '.join(digests)}; nothing was charged. Ask again: its "
        "courier then fetches it"
    )


def _verified(digest: str, chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The chunks as they come; raises at the end unless they were the artifact of this digest."""
    found, size = hashlib.sha256(), 0
    for chunk in chunks:
        size += len(chunk)
        if size > MAX_ARTIFACT_BYTES:
            raise QueryError(f"the artifact {digest} is larger than {MAX_ARTIFACT_BYTES >> 20} MB")
        found.update(chunk)
        yield chunk
    if found.hexdigest() != digest:
        raise VerificationFailed(f"what was deposited as {digest} is incomplete or something else")
