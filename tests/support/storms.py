"""Faults for a simulated federation, whatever engine runs it: at which phase of a run, who is killed, how it ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from support.ledgers import entries

from silosynth.deploy.sim.docker_engine import DockerEngine
from silosynth.deploy.sim.session import Session
from silosynth.deploy.simulation import Question

PATIENCE_SECONDS = 900.0  # machines may be busy; nothing here depends on speed


def journal(run: Path) -> list[dict[str, Any]]:
    file = run / "journal.jsonl"
    lines = file.read_text().splitlines(keepends=True) if file.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def wait_for(so: Callable[[], bool], what: str) -> None:
    ends = time.monotonic() + PATIENCE_SECONDS
    while not so():
        assert time.monotonic() < ends, f"waited too long for {what}"
        time.sleep(0.1)


def silos_that(run: Path, kind: str) -> set[str]:
    return {entry["silo"] for entry in journal(run) if entry["kind"] == kind}


def has(run: Path, *kinds: str) -> bool:
    return any(entry["kind"] in kinds for entry in journal(run))


def spends(session: Session) -> dict[str, int]:
    """How many entries each silo's ledger has."""
    return {silo: entries(session.home.kit(silo).guard) for silo in session.home.silos()}


@contextlib.contextmanager
def frozen_guard(session: Session, silo: str) -> Iterator[None]:
    """Its courier cannot say hello, so the run waits for this silo."""
    freeze, thaw = _switches(session, silo)
    freeze()
    try:
        yield
    finally:
        thaw()


def _switches(session: Session, silo: str) -> tuple[Callable[[], object], Callable[[], object]]:
    if isinstance(session.engine, DockerEngine):
        container = session.engine.container(f"guard-{silo}")
        return container.pause, container.unpause
    pid = json.loads((session.home.folder / "running.json").read_text())["processes"][f"guard-{silo}"]
    return (lambda: os.kill(pid, signal.SIGSTOP)), (lambda: os.kill(pid, signal.SIGCONT))


class Storm:
    """One run each; another epsilon is another query, so every run spends anew."""

    def __init__(self, session: Session, quorum: int) -> None:
        self.session, self._quorum = session, quorum
        self._epsilon = 0.5
        self._table = Table("killed", "at", "come back", "run", "silos in it", "spends", title="Faults", min_width=100)

    def fault(self, killed: list[str], phase: str, come_back: bool) -> None:
        """Kill at a phase of a run that the last silo holds up; then let it go on, and count."""
        before, run = spends(self.session), self._submit()
        with frozen_guard(self.session, self.session.home.silos()[-1]):
            self._wait_for_phase(run, phase, killed)
            for name in killed:
                self.session.engine.kill(name)
            if come_back:
                for name in killed:
                    self.session.engine.revive(name)
        wait_for(lambda: has(run, "finished", "failed"), "the end of the run")
        self._judge(run, killed, phase, come_back, before)
        for name in killed if not come_back else ():
            self.session.engine.revive(name)

    def print(self) -> None:
        Console(width=140).print(self._table)

    def _submit(self) -> Path:
        self._epsilon += 0.01
        question = Question(name="storm", recipe="prototypes", epsilon=self._epsilon, quorum=self._quorum)
        config = self.session.run_config(question)
        patient = config.federation.model_copy(update={"gather_seconds": 60.0, "grace_seconds": 120.0})
        return self.session.engine.submit(config.model_copy(update={"federation": patient}))

    def _wait_for_phase(self, run: Path, phase: str, killed: list[str]) -> None:
        everyone = self.session.home.silos()
        silos = set(killed) & set(everyone) or set(everyone[:-1])
        reached: dict[str, Callable[[], bool]] = {
            "gathering": lambda: has(run, "gathering"),
            "attending": lambda: silos_that(run, "attending") >= silos,
            "asking": lambda: has(run, "asking"),
            "answered": lambda: silos_that(run, "released") >= silos,
        }
        wait_for(reached[phase], phase)

    def _judge(self, run: Path, killed: list[str], phase: str, come_back: bool, before: dict[str, int]) -> None:
        """The run ends; whoever is in the release has spent once, nobody twice."""
        told = journal(run)
        end = told[-1]
        spent = {silo: after - before[silo] for silo, after in spends(self.session).items()}
        without = {entry["silo"] for entry in told if entry["kind"] == "without"}
        took_part = set(spent) - without
        self._table.add_row(
            ", ".join(killed), phase, "yes" if come_back else "no", end["kind"], str(len(took_part)), str(spent)
        )
        assert end["kind"] == "finished", end
        assert len(took_part) >= self._quorum
        assert all(spent[silo] == 1 for silo in took_part), spent
        assert max(spent.values()) <= 1, spent
