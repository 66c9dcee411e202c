"""Following a run by its journal: a live table for people, plain facts for programs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from silosynth.server.narration import Narrator, human_bytes, human_seconds

_FEED_LINES = 6


@dataclass
class SiloView:
    state: str = "starting"
    fraction: float = 0.0
    bytes_sent: int = 0
    spent: float = 0.0
    total: float = 0.0


@dataclass
class WorkView:
    """The server's own work, after the silos have answered or between two questions."""

    entry: dict[str, Any]
    first: dict[str, Any]

    def next(self, entry: dict[str, Any]) -> WorkView:
        """An interrupted work that goes on is timed anew."""
        goes_on = entry["what"] == self.entry["what"] and entry["share"] >= self.entry["share"]
        return WorkView(entry, self.first if goes_on else entry)

    def seconds_left(self) -> float | None:
        done = self.entry["share"] - self.first["share"]
        return (self.entry["time"] - self.first["time"]) * (1 - self.entry["share"]) / done if done > 0 else None

    def render(self) -> Table:
        entry, left = self.entry, self.seconds_left()
        facts = [f"{entry['share']:.0%}"]
        if entry["loss"] is not None:
            facts.append(f"loss {entry['loss']:.4g}")
        if left:
            facts.append(f"about {human_seconds(left)} left")
        row = Table.grid(padding=(0, 2))
        row.add_row(entry["what"], ProgressBar(total=1.0, completed=entry["share"], width=30), ", ".join(facts))
        return row


@dataclass
class RunView:
    """What is known of a run so far."""

    silos: dict[str, SiloView]
    work: WorkView | None = None
    feed: list[str] = field(default_factory=list)
    failure: dict[str, Any] | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    finished: bool = False
    _narrator: Narrator = field(default_factory=Narrator)

    @classmethod
    def of(cls, silos: list[str]) -> RunView:
        return cls({silo: SiloView() for silo in silos})

    def note(self, entry: dict[str, Any]) -> None:
        kind, silo = entry["kind"], self.silos.get(entry.get("silo", ""))
        if silo is not None:
            _note_silo(silo, entry)
        if kind == "working":
            self.work = self.work.next(entry) if self.work else WorkView(entry, entry)
        if kind == "failed":
            self.failure = entry
        if kind in ("evaluated", "released_dataset", "planning"):
            self.facts[kind] = entry
        self.finished = self.finished or kind == "finished"
        sentence = self._narrator.tell(entry)
        if sentence:
            self.feed.append(sentence)

    def render(self) -> Group:
        table = Table(box=None, pad_edge=False)
        for heading in ("silo", "state", "progress", "sent", "privacy spent"):
            table.add_column(heading, justify="right" if heading == "sent" else "left")
        for name, silo in self.silos.items():
            spent = f"eps {silo.spent:.2f} of {silo.total:g}" if silo.total else ""
            bar = ProgressBar(total=1.0, completed=silo.fraction, width=20)
            table.add_row(name, silo.state, bar, human_bytes(silo.bytes_sent), spent)
        work: list[RenderableType] = [Text(), self.work.render()] if self.work else []
        return Group(table, *work, Text(), *(Text(f"  {line}", style="dim") for line in self.feed[-_FEED_LINES:]))


def _note_silo(silo: SiloView, entry: dict[str, Any]) -> None:
    kind = entry["kind"]
    if kind == "progress":
        silo.state, silo.fraction = entry["phase"], entry["fraction"]
    elif kind == "released":
        silo.state, silo.fraction = "released", 1.0
        silo.bytes_sent += entry["bytes"]
        silo.spent, silo.total = entry["epsilon_spent"], entry["epsilon_total"]
    elif kind in ("without", "rolled_back", "left_out"):
        silo.state = "left out"
    elif kind == "waiting_for_consent":
        silo.state = "consent asked"
    elif kind in ("invited", "attending", "away", "fetching"):
        silo.state = kind
