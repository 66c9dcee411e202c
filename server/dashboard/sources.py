"""A server's folder as the dashboard reads it: files only, each again when it has changed, none ever written."""

from __future__ import annotations

import json
import sqlite3
import threading
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from silosynth.common.config import load
from silosynth.common.errors import ConfigError, SilosynthError
from silosynth.common.heads import Head
from silosynth.common.publication.manifest import Manifest
from silosynth.common.publication.names import ReleaseName
from silosynth.server.config import RunConfig, ServerConfig, load_server
from silosynth.server.dashboard.reckoning import Reckoning
from silosynth.server.dashboard.story import Story
from silosynth.server.journal import FORMING, JournalReader
from silosynth.server.releases.entries import Entry
from silosynth.server.releases.keys import load_key, public_half
from silosynth.server.releases.store import STORE_FOLDER, Store
from silosynth.server.witness import witnessed_heads

EVIDENCE = "evidence"  # in the server's folder
_WATCHED = (
    "runs/*",
    "runs/*/journal.jsonl",
    f"runs/*/{FORMING}",
    f"{STORE_FOLDER}/releases/*/*",
    f"{EVIDENCE}/**/*.json",
)


@dataclass(frozen=True)
class Run:
    number: int
    config: RunConfig
    story: Story
    picture: str | None  # of the images as they form: when it was made, so that browsers notice a new one


@dataclass(frozen=True)
class Found:
    """A report as its file tells it. Its models would bring torch along, which takes seconds."""

    place: str  # in the server's folder; empty if it is part of the release
    document: dict[str, Any]


@dataclass(frozen=True)
class Published:
    entry: Entry
    withdrawn: str | None  # why

    @property
    def name(self) -> str:
        return str(self.entry.release)


class Sources:
    """Safe to use from many threads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = Store(folder / STORE_FOLDER)
        self.reckoning = Reckoning()
        self._followers: dict[int, _Follower] = {}
        self._lock = threading.Lock()

    def server(self) -> ServerConfig:
        return load_server(self.folder / "server.toml")

    def runs(self) -> list[Run]:
        """The newest first. What another version of silosynth wrote is left out."""
        numbers = (int(path.parent.name) for path in self.folder.glob("runs/[1-9]*/run.toml") if _numbered(path))
        found = (self._follow(number) for number in sorted(numbers, reverse=True))
        return [run for run in found if run is not None]

    def run(self, number: int) -> Run:
        found = self._follow(number) if (self.folder / "runs" / str(number) / "run.toml").exists() else None
        if found is None:
            raise ConfigError(f"This server has no run {number} that this version can read.")
        return found

    def picture(self, number: int) -> Path:
        return self.folder / "runs" / str(number) / FORMING

    def published(self) -> list[Published]:
        """Everything in the store, the newest first, whatever its name."""
        entries = sorted(self.store.entries(), key=lambda entry: (entry.created, entry.release), reverse=True)
        return [Published(entry, self.store.withdrawn(entry.release)) for entry in entries]

    def release(self, name: str, version: int) -> Published:
        entry = self.store.entry(ReleaseName(name, version))
        return Published(entry, self.store.withdrawn(entry.release))

    def manifest(self, entry: Entry) -> Manifest:
        """Published once, never changed: read once."""
        return read_manifest(self.manifest_path(entry))

    def manifest_path(self, entry: Entry) -> Path:
        return next(self.store.parts(entry.release))[0]

    def document(self, entry: Entry, name: str) -> bytes | None:
        """A file of a release, if it has it."""
        if name not in self.manifest(entry).files:
            return None
        return self.file(entry, name).read_bytes()

    def file(self, entry: Entry, name: str) -> Path:
        """Where a file of a release lies; ConfigError if it has no such file."""
        facts = self.manifest(entry).files.get(name)
        if facts is None:
            raise ConfigError(f"{entry.release} has no file {name}")
        return self.store.place_of(facts)

    def evaluations(self, published: list[Published]) -> dict[str, Found]:
        """By release, the newest of each: as it was released, or evaluated anew on public records since."""
        found = {one.name: self._released_evaluation(one.entry) for one in published}
        for anew in reversed(self.evidence("evaluation.json")):
            name = str(anew.document.get("release"))
            if name in found:
                found[name] = _renewed(found[name], anew)
        return {name: report for name, report in found.items() if report is not None}

    def _released_evaluation(self, entry: Entry) -> Found | None:
        content = self.document(entry, "evaluation.json")
        return None if content is None else Found("", _parsed(content))

    def evidence(self, name: str) -> list[Found]:
        """What was measured later and put into the server's `evidence` folder, the newest first."""
        paths = sorted(self.folder.glob(f"{EVIDENCE}/**/{name}"), key=_stamp, reverse=True)
        return [Found(str(path.relative_to(self.folder)), _parsed(path.read_bytes())) for path in paths]

    def heads(self) -> list[Head]:
        try:
            return witnessed_heads(self.folder / "witness.db")
        except sqlite3.Error as error:
            raise ConfigError(f"The witnessed ledger heads cannot be read now: {error}") from error

    def publisher(self) -> str | None:
        """The public key of this server's signatures, if it may be read here."""
        try:
            return public_half(load_key(self.folder))
        except ConfigError:
            return None

    def version(self) -> int:
        """Another number whenever there is something new to see."""
        watched = [self.folder / "server.toml", self.folder / "witness.db"]
        for pattern in _WATCHED:
            watched += self.folder.glob(pattern)
        return hash((self.reckoning.done, *sorted((str(path), *_stamp(path)) for path in watched)))

    def _follow(self, number: int) -> Run | None:
        with self._lock:
            try:
                if number not in self._followers:
                    self._followers[number] = _Follower(number, self.folder / "runs" / str(number))
                return self._followers[number].run()
            except SilosynthError:
                return None


class _Follower:
    """Keeps one run's story up to date."""

    def __init__(self, number: int, folder: Path) -> None:
        self._number, self._picture = number, folder / FORMING
        self._config = load(RunConfig, folder / "run.toml")
        self._reader = JournalReader(folder / "journal.jsonl")
        self._story = Story(self._config.federation.silos)

    def run(self) -> Run:
        for entry in self._reader.new_entries():
            self._story.hear(entry)
        made = _stamp(self._picture)
        return Run(self._number, self._config, self._story, f"{made[0]:x}" if made[0] else None)


@lru_cache(maxsize=512)
def read_manifest(path: Path) -> Manifest:
    return Manifest.from_bytes(path.read_bytes())


def _renewed(old: Found | None, new: Found) -> Found:
    """What only the run knew, such as the ceiling, still holds."""
    said = {name: value for name, value in new.document.items() if value not in (None, {}, [])}
    return Found(new.place, {**old.document, **said}) if old else new


def _parsed(content: bytes) -> dict[str, Any]:
    """Empty where it is not JSON: no view finds what it needs in that."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _numbered(path: Path) -> bool:
    return path.parent.name.isdecimal()


def _stamp(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size
