"""`silosynth sim` by processes, as a person runs it: up, killed, brought back, scaled, down, nothing left."""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.descendants import descendants, marked_environment
from support.ledgers import entries

from silosynth.common.publication import verify_release

pytestmark = pytest.mark.timeout(900)
SILOSYNTH = str(Path(sys.executable).parent / "silosynth")


@dataclass(frozen=True)
class Sim:
    folder: Path
    mark: str
    environment: dict[str, str]

    def __call__(self, command: str, *arguments: str, code: int = 0) -> str:
        done = subprocess.run(
            [SILOSYNTH, "sim", command, *arguments, "--folder", str(self.folder)],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=800,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout or done.stderr

    def up(self, *arguments: str) -> dict[str, Any]:
        options = ("--silos", "2", "--engine", "process", "--quorum", "1", "--format", "json")
        return dict(json.loads(self("up", *options, *arguments)))

    def entries(self, silo: str) -> int:
        return entries(self.folder / "federation/kits" / silo / "guard")


@pytest.fixture(scope="module")
def sim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sim]:
    sim = Sim(tmp_path_factory.mktemp("sim") / "sim", *marked_environment())
    try:
        yield sim
    finally:
        sim("down")
    assert descendants(sim.mark) == []


def test_a_run_ends_with_the_release_at_every_silo_and_one_charge(sim: Sim) -> None:
    told = sim.up("--epsilon", "2")
    verify_release(Path(told["release"]))
    assert all(Path(told["pulled"][silo]).is_dir() for silo in ("silo-0", "silo-1"))
    assert all(sim.entries(silo) == 1 for silo in told["pulled"])
    assert all(1.5 < spent <= 2 for spent in told["spent"].values())
    with urllib.request.urlopen(f"{told['dashboard']}/healthz") as answer:
        assert answer.status == 200


def test_a_silo_is_killed_and_brought_back(sim: Sim) -> None:
    sim("kill", "silo-0")
    names = {part["name"] for part in json.loads(sim("status", "--format", "json"))}
    assert "guard-silo-1" in names
    assert not [name for name in names if name.endswith("silo-0")]
    sim("start", "silo-0")
    assert "guard ready" in sim("logs", "silo-0")


def test_the_same_question_again_with_one_silo_more_costs_the_others_nothing(sim: Sim) -> None:
    sim("scale", "3")
    told = sim.up("--epsilon", "2")
    assert set(told["pulled"]) == {"silo-0", "silo-1", "silo-2"}
    assert [sim.entries(silo) for silo in sorted(told["pulled"])] == [1, 1, 1]


def test_what_is_not_there_is_told(sim: Sim) -> None:
    assert "there are superlink" in sim("kill", "silo-9", code=3)
    assert "another federation" in sim("up", "--silos", "3", "--engine", "process", code=3)
