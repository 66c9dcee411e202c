"""The store: every release this server has published, by content. Nothing in it is ever changed.

objects/ab/<sha256>             files, each once, whatever releases hold it
releases/<name>/<version>/      manifest.json, manifest.json.sig, entry.json; withdrawn.json when it was taken back
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from silosynth.common.config import parse
from silosynth.common.errors import ConfigError
from silosynth.common.publication.files import FileFacts
from silosynth.common.publication.manifest import Manifest, Naming, Parent
from silosynth.common.publication.names import ReleaseName
from silosynth.common.publication.signature import MANIFEST, SIGNATURE
from silosynth.common.publication.verification import verify_release
from silosynth.server.releases.durable import sync, write_durably
from silosynth.server.releases.entries import Entry

STORE_FOLDER = "store"  # in the server's folder
_ENTRY, _WITHDRAWN = "entry.json", "withdrawn.json"


class Store:
    """Safe to use from several runs at once: versions are reserved, and files appear whole."""

    def __init__(self, folder: Path) -> None:
        self._objects, self._releases = folder / "objects", folder / "releases"

    def reserve(self, name: str, extends: int | None = None) -> Naming:
        """The next version of `name`. A run that fails afterwards leaves a gap: a version is never given twice.

        Its parent is the version it extends, else the one before it.
        """
        folder = self._releases / ReleaseName(name, 1).name
        folder.mkdir(parents=True, exist_ok=True)
        version = max((int(taken.name) for taken in folder.iterdir()), default=0)
        while True:
            version += 1
            try:
                (folder / str(version)).mkdir()
            except FileExistsError:
                continue  # another run took it at this moment
            break
        last = version - 1 if extends is None else extends
        before = [entry for entry in self.entries() if entry.name == name and entry.version <= last]
        parent = Parent(version=before[-1].version, sha256=before[-1].sha256) if before else None
        return Naming(
            name=name, version=version, created=datetime.now(UTC).isoformat(timespec="seconds"), parent=parent
        )

    def add(self, folder: Path, publisher: str) -> Entry:
        """Take in a release folder written under a reserved name; returns its entry."""
        manifest = verify_release(folder, publisher)
        content = (folder / MANIFEST).read_bytes()
        place = self._place(ReleaseName(manifest.release.name, manifest.release.version))
        if not place.is_dir() or (place / _ENTRY).exists():
            raise ConfigError(f"{manifest.release} was not reserved in {self._releases}, or is published already")
        for name, facts in manifest.files.items():
            self._keep(folder / name, facts)
        sha256 = hashlib.sha256(content).hexdigest()
        entry = Entry.of(manifest, sha256, len(content), _accuracy(folder))
        for name, data in (
            (MANIFEST, content),
            (SIGNATURE, (folder / SIGNATURE).read_bytes()),
            (_ENTRY, entry.model_dump_json(indent=2).encode()),
        ):
            write_durably(place / name, data)
        return entry

    def entries(self) -> list[Entry]:
        """Everything published, by name and version; withdrawn releases too."""
        found = (parse(Entry, json.loads(path.read_text()), str(path)) for path in self._releases.glob(f"*/*/{_ENTRY}"))
        return sorted(found, key=lambda entry: entry.release)

    def entry(self, release: ReleaseName) -> Entry:
        path = self._place(release) / _ENTRY
        if not path.exists():
            raise ConfigError(f"{release} was never published here: `silosynth release list` tells what was")
        return parse(Entry, json.loads(path.read_text()), str(path))

    def withdraw(self, release: ReleaseName, reason: str) -> None:
        """Take a release back: it stays listed, with the reason, and is no longer handed out."""
        self.entry(release)
        if (earlier := self.withdrawn(release)) is not None:
            raise ConfigError(f"{release} is withdrawn already: {earlier}")
        note = {"reason": reason, "time": _now()}
        write_durably(self._place(release) / _WITHDRAWN, json.dumps(note).encode())

    def withdrawn(self, release: ReleaseName) -> str | None:
        """Why a release was taken back, if it was."""
        try:
            return str(json.loads((self._place(release) / _WITHDRAWN).read_text())["reason"])
        except FileNotFoundError:
            return None

    def signature(self, release: ReleaseName) -> bytes:
        return (self._place(release) / SIGNATURE).read_bytes()

    def text(self, release: ReleaseName, name: str) -> str:
        """A document of a release, such as README.md."""
        return self.path(release, name).read_text()

    def path(self, release: ReleaseName, name: str) -> Path:
        """Where a file of a release lies."""
        return self.place_of(self.manifest(release).files[name])

    def parts(self, release: ReleaseName) -> Iterator[tuple[Path, int]]:
        """What is streamed: the manifest, then its files in its order, with their sizes."""
        path = self._place(release) / MANIFEST
        yield path, path.stat().st_size
        for facts in self.manifest(release).files.values():
            yield self.place_of(facts), facts.bytes

    def manifest(self, release: ReleaseName) -> Manifest:
        return Manifest.from_bytes((self._place(release) / MANIFEST).read_bytes())

    def _place(self, release: ReleaseName) -> Path:
        return self._releases / release.name / str(release.version)

    def place_of(self, facts: FileFacts) -> Path:
        """Where a file that a manifest names lies."""
        return self._objects / facts.sha256[:2] / facts.sha256

    def _keep(self, path: Path, facts: FileFacts) -> None:
        """Copied, not linked: whoever edits the run's folder must not change what was published."""
        place = self.place_of(facts)
        if place.exists():
            return
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=place.parent, prefix=".") as scratch, path.open("rb") as source:
            shutil.copyfileobj(source, scratch, 1 << 20)
            scratch.flush()
            os.fsync(scratch.fileno())
            with contextlib.suppress(FileExistsError):  # another run released the same file at this moment
                os.link(scratch.name, place)
        sync(place.parent)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _accuracy(folder: Path) -> float | None:
    path = folder / "evaluation.json"
    return float(json.loads(path.read_text())["accuracy"]) if path.exists() else None
