"""The shelf: where pulled releases stand, as <name>/<version>/, ready to be read by anybody's program."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from silosynth.common.errors import ConfigError, ReleaseWithdrawn
from silosynth.common.publication.names import ReleaseName

_VARIABLE = "SILOSYNTH_RELEASES"
_PARTIAL, _WITHDRAWN = ".partial", ".withdrawn"


@dataclass(frozen=True)
class Shelf:
    folder: Path

    @classmethod
    def default(cls) -> Shelf:
        """$SILOSYNTH_RELEASES, else ~/.silosynth/releases."""
        chosen = os.environ.get(_VARIABLE)
        return cls(Path(chosen) if chosen else Path.home() / ".silosynth" / "releases")

    def place(self, release: ReleaseName) -> Path:
        return self.folder / release.name / str(release.version)

    def partial(self, release: ReleaseName) -> Path:
        """Where a release grows until it is whole and verified."""
        return self.folder / release.name / f".{release.version}{_PARTIAL}"

    def holds(self, release: ReleaseName) -> bool:
        return self.place(release).is_dir()

    def releases(self) -> list[ReleaseName]:
        found = [path for path in self.folder.glob("*/*") if path.is_dir() and path.name.isdecimal()]
        return sorted(ReleaseName(path.parent.name, int(path.name)) for path in found)

    def find(self, release: ReleaseName) -> Path:
        """The folder of a release that may be used."""
        if not self.holds(release):
            raise ConfigError(f"{release} is not in {self.folder}: get it with `silosynth release pull {release}`")
        if (reason := self.withdrawn(release)) is not None:
            raise ReleaseWithdrawn(f"{release} was taken back by its publisher: {reason}")
        return self.place(release)

    def note_withdrawal(self, release: ReleaseName, reason: str) -> None:
        self._note(release).write_text(reason)

    def withdrawn(self, release: ReleaseName) -> str | None:
        """Why it was taken back, if the catalog has said so."""
        note = self._note(release)
        return note.read_text() if note.exists() else None

    def _note(self, release: ReleaseName) -> Path:
        return self.folder / release.name / f"{release.version}{_WITHDRAWN}"
