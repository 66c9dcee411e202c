"""A run told from its journal: what every silo did, phase after phase, and how the synthesis went."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field

from silosynth.server.journal import Fact
from silosynth.server.narration import Narrator

_FROM_THE_SILO = ("attending", "progress", "fetching", "released")
_ENDS = ("finished", "failed")
_QUIET_SECONDS = 600.0


@dataclass
class Phase:
    name: str
    begun: float
    ended: float | None = None


@dataclass
class Curve:
    """How the loss of one piece of work fell, by seconds since it began."""

    name: str
    begun: float
    seconds: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)


@dataclass
class Part:
    """One silo's part in a run."""

    silo: str
    state: str = "not here yet"
    fraction: float = 0.0
    bytes: int = 0
    answers: int = 0
    slowest_seconds: float = 0.0
    spent_before: float | None = None
    spent: float | None = None
    total: float | None = None
    delta: float | None = None
    version: str = ""
    dataset: str = ""
    waits_for: str = ""  # the query that its people have yet to decide on
    last_seen: float | None = None


@dataclass
class Sentence:
    time: float
    words: str
    kind: str


class Story:
    """Told entry by entry; read whenever one likes."""

    def __init__(self, silos: tuple[str, ...]) -> None:
        self.parts = {silo: Part(silo) for silo in silos}
        self.phases: list[Phase] = []
        self.curves: list[Curve] = []
        self.feed: list[Sentence] = []
        self.end: Fact | None = None
        self.release: str | None = None
        self.begun: float | None = None
        self.last_news: float | None = None
        self.work: Fact | None = None
        self._narrator, self._round, self._asked = Narrator(), 0, 0.0

    @property
    def state(self) -> str:
        if self.end is not None:
            return str(self.end["kind"])
        return "submitted" if self.begun is None else "running"

    @property
    def is_quiet(self) -> bool:
        """Whether nothing was heard for so long that its coordinator may be dead."""
        return self.end is None and self.last_news is not None and time.time() - self.last_news > _QUIET_SECONDS

    @property
    def seconds(self) -> float:
        return (self.last_news or 0.0) - (self.begun or 0.0)

    def hear(self, entry: Fact) -> None:
        with contextlib.suppress(KeyError, TypeError, ValueError):  # an entry of another version of silosynth
            self._hear(entry)

    def _hear(self, entry: Fact) -> None:
        kind, when = entry["kind"], float(entry["time"])
        self.begun, self.last_news = self.begun if self.begun is not None else when, when
        sentence = self._narrator.tell(entry)
        if sentence is not None:
            self.feed.append(Sentence(when, sentence, kind))
        part = self.parts.get(entry.get("silo", ""))
        if part is not None:
            self._hear_of(part, entry, when)
        self._follow(kind, entry, when)

    def _follow(self, kind: str, entry: Fact, when: float) -> None:
        if kind in ("asking", "recalled"):
            self._round, self._asked = self._round + 1, when
            for part in self.parts.values():
                part.fraction = 0.0
            self._enter(f"Round {self._round}: {entry['mechanism'].replace('_', ' ')}", when)
            if kind == "recalled":
                self._close(when)
        elif kind == "working":
            self._work(entry, when)
        elif kind in ("gathering", "planning", "evaluating"):
            self._enter({"gathering": "Gathering silos", "planning": "Planning"}.get(kind, "Evaluating"), when)
        elif kind in ("summed", "synthesized", "evaluated", "compared", "not_compared", "scored", "not_scored"):
            self._close(when)
        elif kind == "released_dataset":
            self.release = str(entry["name"])
            self._enter("Writing and signing", (self.phases[-1].ended if self.phases else None) or when)
            self._close(when)
        elif kind in _ENDS:
            self.end = entry
            self._close(when)

    def _enter(self, name: str, when: float) -> None:
        self._close(when)
        self.phases.append(Phase(name, when))

    def _close(self, when: float) -> None:
        if self.phases and self.phases[-1].ended is None:
            self.phases[-1].ended = when

    def _work(self, entry: Fact, when: float) -> None:
        self.work, name = entry, str(entry["what"]).capitalize()
        open_phase = self.phases[-1] if self.phases and self.phases[-1].ended is None else None
        if open_phase is None or open_phase.name != name:
            self._enter(name, when)
            self.curves.append(Curve(name, when))
        if entry["loss"] is not None and self.curves:
            self.curves[-1].seconds.append(round(when - self.curves[-1].begun, 2))
            self.curves[-1].losses.append(entry["loss"])

    def _hear_of(self, part: Part, entry: Fact, when: float) -> None:
        kind = entry["kind"]
        if kind in _FROM_THE_SILO:
            part.last_seen = when
        if kind == "attending":
            part.version, part.dataset = entry.get("version", ""), entry.get("dataset", "")
            part.spent, part.total, part.delta = (entry.get(f) for f in ("epsilon_spent", "epsilon_total", "delta"))
            part.spent_before = part.spent if part.spent_before is None else part.spent_before
        elif kind == "progress":
            part.fraction = entry["fraction"]
        elif kind == "released":
            if not part.waits_for:  # people took that time, not the silo
                part.slowest_seconds = max(part.slowest_seconds, when - self._asked)
            part.fraction, part.waits_for = 1.0, ""
            part.bytes, part.answers = part.bytes + entry["bytes"], part.answers + 1
            part.spent, part.total = entry["epsilon_spent"], entry["epsilon_total"]
        elif kind == "waiting_for_consent":
            part.waits_for = entry["digest"]
        elif kind in ("without", "left_out", "rolled_back"):
            part.waits_for = ""
        part.state = _state(entry) or part.state


def _state(entry: Fact) -> str | None:
    states = {
        "invited": "invited",
        "attending": "here",
        "fetching": "fetching a public file",
        "progress": str(entry.get("phase", "")),
        "released": "answered",
        "waiting_for_consent": "waits for its people",
        "away": "away",
        "courier_left": "left",
        "without": "left out",
        "left_out": "left out",
        "rolled_back": "left out",
    }
    return states.get(entry["kind"])
