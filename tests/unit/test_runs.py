"""Run folders: what is written is what was asked for, and how a run went can be read from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from rich.console import Console

from silosynth.common.config import load
from silosynth.common.errors import BudgetExhausted, ConfigError, RunFailed
from silosynth.deploy import runs
from silosynth.deploy.flower import Flwr
from silosynth.deploy.kits import FederationFolder, Place
from silosynth.deploy.server_folder import ServerFolder
from silosynth.server.config import RunConfig, load_server

RUN: dict[str, Any] = {
    "name": "first",
    "recipe": "prototypes",
    "records": {"shape": [8, 8, 1], "classes": 10},
    "privacy": {"epsilon": 2.0, "delta": 1e-5},
    "federation": {"silos": ["one"], "quorum": 1},
    "evaluation": {"test": {"path": "test.npz", "classes": 10}},
}


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ServerFolder:
    """A server whose Flower accepts every run."""
    federation = FederationFolder.create(tmp_path / "federation", Place(("127.0.0.1",)))
    federation.add_silo("one")
    monkeypatch.setattr(Flwr, "run", lambda flwr, bundle, folder: "77")
    return ServerFolder(federation.server)


@pytest.fixture
def run_toml(tmp_path: Path) -> Path:
    path = tmp_path / "run.toml"
    path.write_text(tomli_w.dumps(RUN))
    return path


def journal(folder: Path, *entries: dict[str, Any]) -> None:
    with (folder / "journal.jsonl").open("a") as file:
        file.writelines(json.dumps({"time": 1.0, **entry}) + "\n" for entry in entries)


def test_a_submitted_run_is_written_whole(server: ServerFolder, run_toml: Path) -> None:
    config = runs.load_run(run_toml)
    folder = server.submit(config, {})
    assert load(RunConfig, folder / "run.toml") == config
    assert load(RunConfig, folder / "run.toml").digest() == config.digest()
    assert config.evaluation.test is not None
    assert config.evaluation.test.path == run_toml.parent / "test.npz"
    assert load_server(folder / "server.toml") == server.config()
    assert server.submit(config, {}).name == "2"


def test_no_run_for_a_silo_the_server_does_not_know(server: ServerFolder, run_toml: Path) -> None:
    run_toml.write_text(run_toml.read_text().replace('"one"', '"two"'))
    with pytest.raises(ConfigError, match="two not registered"):
        server.submit(runs.load_run(run_toml), {})
    assert not server.runs.exists()


def test_a_run_flower_does_not_take_leaves_nothing(
    server: ServerFolder, run_toml: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(flwr: Flwr, bundle: Path, folder: Path) -> str:
        raise RunFailed("no SuperLink")

    monkeypatch.setattr(Flwr, "run", refuse)
    with pytest.raises(RunFailed, match="no SuperLink"):
        server.submit(runs.load_run(run_toml), {})
    assert list(server.runs.iterdir()) == []


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("prototypes", "protoypes", "no recipe is called 'protoypes'"),
        ("[privacy]", "[parameters]\nmisspelt = 1\n\n[privacy]", "parameters: misspelt: unknown key"),
        ("quorum", "qourum", "federation.qourum: unknown key"),
    ],
)
def test_a_wrong_run_is_told_before_it_is_submitted(run_toml: Path, old: str, new: str, complaint: str) -> None:
    run_toml.write_text(run_toml.read_text().replace(old, new))
    with pytest.raises(ConfigError, match=complaint):
        runs.load_run(run_toml)


def test_runs_are_listed_with_their_state(server: ServerFolder, run_toml: Path) -> None:
    assert runs.summaries(server) == []
    folders = [server.submit(runs.load_run(run_toml), {}) for _ in range(4)]
    journal(folders[1], {"kind": "gathering", "silos": ["one"]})
    journal(folders[2], {"kind": "failed", "error": "BudgetExhausted", "message": "too much"})
    journal(folders[3], {"kind": "finished"})
    listed = runs.summaries(server)
    assert [(run.run, run.state) for run in listed] == [
        (1, "submitted"),
        (2, "running"),
        (3, "failed"),
        (4, "finished"),
    ]
    assert listed[2].message == "too much"
    with pytest.raises(ConfigError, match="holds no run"):
        runs.run_folder(server, 5)


def quiet_console() -> Console:
    return Console(quiet=True)


def test_a_failed_run_ends_its_watcher_with_its_error(server: ServerFolder, run_toml: Path) -> None:
    folder = server.submit(runs.load_run(run_toml), {})
    journal(folder, {"kind": "failed", "error": "BudgetExhausted", "message": "too much"})
    with pytest.raises(BudgetExhausted, match="too much"):
        runs.follow(folder, quiet_console(), lambda: None)


def test_a_finished_run_is_told_to_programs(server: ServerFolder, run_toml: Path) -> None:
    folder = server.submit(runs.load_run(run_toml), {})
    released = {"kind": "released", "silo": "one", "bytes": 5, "epsilon_spent": 1.0, "epsilon_total": 4.0}
    journal(folder, released, {"kind": "finished"})
    told = runs.outcome(folder, runs.follow(folder, quiet_console(), lambda: None))
    assert (told["run"], told["state"], told["evaluation"]) == (1, "finished", None)
    assert told["silos"]["one"]["spent"] == 1.0


def test_a_coordinator_that_died_silently_is_noticed(
    server: ServerFolder, run_toml: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = server.submit(runs.load_run(run_toml), {})
    asked: list[str] = []

    def run_status(flwr: Flwr, run_id: str) -> str:
        asked.append(run_id)
        return "running" if len(asked) == 1 else "finished:failed"

    monkeypatch.setattr(Flwr, "run_status", run_status)
    monkeypatch.setattr(runs, "_ASK_FLOWER_SECONDS", 0.0)
    with pytest.raises(RunFailed, match="without a word"):
        runs.follow(folder, quiet_console(), runs.flower_still_has(server, folder))
    assert asked == ["77", "77"]


def test_a_server_that_is_gone_is_noticed_but_a_short_silence_forgiven(
    server: ServerFolder, run_toml: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = server.submit(runs.load_run(run_toml), {})
    answers = iter([None, None, "running", None, None, None])

    def run_status(flwr: Flwr, run_id: str) -> str:
        answer = next(answers)
        if answer is None:
            raise RunFailed("nobody answers")
        return answer

    monkeypatch.setattr(Flwr, "run_status", run_status)
    monkeypatch.setattr(runs, "_ASK_FLOWER_SECONDS", 0.0)
    with pytest.raises(RunFailed, match="nobody answers"):
        runs.follow(folder, quiet_console(), runs.flower_still_has(server, folder))
    assert list(answers) == []
