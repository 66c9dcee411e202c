"""Runs of a server folder: read and checked before submission, listed, and followed to their end."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live

from silosynth.common.config import load, parse
from silosynth.common.errors import ConfigError, RunFailed, from_wire
from silosynth.deploy.server_folder import ServerFolder
from silosynth.deploy.watch import RunView
from silosynth.server.config import RunConfig
from silosynth.server.journal import JournalReader

_REFRESH_SECONDS = 0.2
_ASK_FLOWER_SECONDS = 20.0  # each question starts a process
_SILENCES_ALLOWED = 3


@dataclass(frozen=True)
class RunSummary:
    """One line of `silosynth run list`."""

    run: int
    name: str
    recipe: str
    silos: tuple[str, ...]
    config_digest: str
    state: str
    last_news: str
    message: str


def load_run(path: Path) -> RunConfig:
    """Read run.toml and find what is wrong with it before any silo is asked; paths become absolute."""
    from silosynth.server.recipes import recipe_named

    config = load(RunConfig, path)
    parse(recipe_named(config.recipe).parameters, config.parameters, f"{path}: parameters")
    test = config.evaluation.test
    if test is None or test.path is None:
        return config
    absolute = test.model_copy(update={"path": path.absolute().parent / test.path.expanduser()})
    return config.model_copy(update={"evaluation": config.evaluation.model_copy(update={"test": absolute})})


def run_folder(server: ServerFolder, number: int) -> Path:
    folder = server.runs / str(number)
    if not (folder / "run.toml").exists():
        raise ConfigError(f"{folder} holds no run: `silosynth run list` tells which there are")
    return folder


def summaries(server: ServerFolder) -> list[RunSummary]:
    """Every run of this server, oldest first."""
    numbers = sorted(int(folder.name) for folder in server.runs.glob("*") if folder.name.isdecimal())
    return [_summary(run_folder(server, number)) for number in numbers]


def _summary(folder: Path) -> RunSummary:
    config = load(RunConfig, folder / "run.toml")
    entries = list(JournalReader(folder / "journal.jsonl").new_entries())
    end = next((entry for entry in reversed(entries) if entry["kind"] in ("finished", "failed")), None)
    news = datetime.fromtimestamp(entries[-1]["time"], UTC).isoformat(timespec="seconds") if entries else ""
    return RunSummary(
        run=int(folder.name),
        name=config.name,
        recipe=config.recipe,
        silos=config.federation.silos,
        config_digest=config.digest(),
        state=end["kind"] if end else ("running" if entries else "submitted"),
        last_news=news,
        message=end.get("message", "") if end else "",
    )


def follow(
    folder: Path, console: Console, check: Callable[[], None], hear: Callable[[dict[str, Any]], None] | None = None
) -> RunView:
    """Show the journal of a run until it ends; its failure is raised. `check` raises when it can no longer end.

    `hear` gets every entry, those of before included.
    """
    reader = JournalReader(folder / "journal.jsonl")
    view = RunView.of(list(load(RunConfig, folder / "run.toml").federation.silos))
    with Live(view.render(), console=console, refresh_per_second=8, transient=not console.is_terminal) as live:
        while not view.finished and view.failure is None:
            check()
            for entry in reader.new_entries():
                view.note(entry)
                if hear:
                    hear(entry)
            live.update(view.render())
            time.sleep(_REFRESH_SECONDS)
    if view.failure is not None:
        raise from_wire(view.failure["error"], view.failure["message"])
    return view


def flower_still_has(server: ServerFolder, folder: Path) -> Callable[[], None]:
    """A check for `follow`: a coordinator that was killed writes nothing, but Flower knows that it has ended."""
    asked, ended, silences = time.monotonic(), False, 0

    def check() -> None:
        nonlocal asked, ended, silences
        if ended:
            raise RunFailed(f"the run's coordinator ended without a word: see the logs in {server.folder / 'logs'}")
        if time.monotonic() - asked < _ASK_FLOWER_SECONDS:
            return
        try:
            status = server.flwr(os.environ).run_status((folder / "flower-run-id").read_text())
        except RunFailed:
            silences += 1
            if silences == _SILENCES_ALLOWED:  # a SuperLink that is being started again is back before that
                raise
        else:
            silences, ended = 0, status.startswith("finished")  # the journal is read once more before the end is told
        asked = time.monotonic()

    return check


def outcome(folder: Path, view: RunView) -> dict[str, Any]:
    """A finished run, for programs."""
    release = folder / "release"
    evaluation = release / "evaluation.json"
    return {
        "run": int(folder.name),
        "state": "finished",
        "release": str(release),
        "evaluation": json.loads(evaluation.read_text()) if evaluation.exists() else None,
        "silos": {name: asdict(silo) for name, silo in view.silos.items()},
    }
