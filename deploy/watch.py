"""Following a run by its journal: a live table for people, plain facts for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

_FEED_LINES = 6


class JournalReader:
    """Yields the entries that were added since the last look."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset = path, 0

    def new_entries(self) -> Iterator[dict[str, Any]]:
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return  # still being written
                self._offset += len(line)
                yield json.loads(line)


@dataclass
class SiloView:
    state: str = "starting"
    fraction: float = 0.0
    bytes_sent: int = 0
    spent: float = 0.0
    total: float = 0.0


@dataclass
class RunView:
    """What is known of a run so far."""

    silos: dict[str, SiloView]
    feed: list[str] = field(default_factory=list)
    failure: dict[str, Any] | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    finished: bool = False

    @classmethod
    def of(cls, silos: list[str]) -> RunView:
        return cls({silo: SiloView() for silo in silos})

    def note(self, entry: dict[str, Any]) -> None:
        kind, silo = entry["kind"], self.silos.get(entry.get("silo", ""))
        if silo is not None:
            _note_silo(silo, entry)
        if kind == "failed":
            self.failure = entry
        if kind in ("evaluated", "released_dataset", "planning"):
            self.facts[kind] = entry
        self.finished = self.finished or kind == "finished"
        sentence = in_words(entry)
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
        return Group(table, Text(), *(Text(f"  {line}", style="dim") for line in self.feed[-_FEED_LINES:]))


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


def in_words(entry: dict[str, Any]) -> str | None:
    """An entry as a sentence; None for those that only move a bar."""
    sentences = {
        "gathering": "Inviting {silos}",
        "attending": "{silo} attends",
        "away": "{silo} lost the connection: waiting for it to redial",
        "planning": "Recipe {recipe} at eps {epsilon:g}, delta {delta:g} for each silo",
        "asking": "Asking every silo: {mechanism}, {values} values (query {digest:.12})",
        "fetching": "{silo} fetches a public file of {bytes} bytes",
        "summed": "{silos} silos answered",
        "waiting_for_consent": "{silo} waits for its people to approve query {digest}",
        "rolled_back": "{silo} is left out: {message}",
        "left_out": "{silo} is left out: {message}",
        "without": "Going on without {silo}: {message}",
        "synthesized": "{records} synthetic records",
        "evaluating": "Training {model} on the synthetic data",
        "released_dataset": "Release written",
        "failed": "Failed: {message}",
    }
    facts = {**entry, "silos": ", ".join(entry["silos"])} if isinstance(entry.get("silos"), list) else entry
    sentence = sentences.get(entry["kind"])
    return sentence.format(**facts) if sentence else None


def human_bytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB"
