"""A real federation (Flower, guards, couriers as processes) whose parts are killed while a run waits for them.

A guard is frozen to hold the run at a known point; then something dies; then the guard goes on.
"""

import contextlib
import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support import ledgers
from support.descendants import VARIABLE, descendants

from silosynth.common.datasets import load
from silosynth.common.partition import partition
from silosynth.common.queries import Query
from silosynth.deploy import sandbox
from silosynth.deploy.federation import LocalFederation
from silosynth.deploy.flower import BUNDLE
from silosynth.deploy.processes import Processes

MARK = f"faults-{os.getpid()}"


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFederation]:
    folder = tmp_path_factory.mktemp("federation")
    train = load("digits", split="train")
    os.environ[VARIABLE] = MARK
    with Processes(folder / "logs") as processes:
        federation = LocalFederation(folder, processes)
        for number, indices in enumerate(partition("iid", train.labels, 3, seed=0)):
            budget = {"epsilon": 100.0, "delta": 1e-5}
            policy = {"mechanisms": sorted(Query.kinds), "consent": "auto"}
            federation.add_silo(f"silo-{number}", train.take(indices), budget, policy)
        federation.start()
        yield federation
    federation.close()
    del os.environ[VARIABLE]
    assert descendants(MARK) == []


def run_config(federation: LocalFederation, epsilon: float) -> dict[str, Any]:
    """Another epsilon is another query: each test spends anew."""
    return {
        "name": "faults",
        "recipe": "prototypes",
        "records": {"shape": [8, 8, 1], "classes": 10},
        "privacy": {"epsilon": epsilon, "delta": 1e-5},
        "federation": {"silos": federation.silos, "quorum": 2, "grace_seconds": 100.0},
    }


def journal(run: Path) -> list[dict[str, Any]]:
    file = run / "journal.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def kinds(run: Path, silo: str | None = None) -> list[str]:
    return [entry["kind"] for entry in journal(run) if silo in (None, entry.get("silo"))]


def wait_for(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, "waited too long"
        time.sleep(0.1)


def wait_for_end(run: Path) -> None:
    wait_for(lambda: bool({"finished", "failed"} & set(kinds(run))))
    assert kinds(run)[-1] == "finished", journal(run)[-1]


def entries(federation: LocalFederation, silo: str) -> int:
    return ledgers.entries(federation.guard_folder(silo))


@contextlib.contextmanager
def held_at_the_gathering(federation: LocalFederation, silo: str) -> Iterator[None]:
    """While this silo's guard is frozen its courier cannot say hello, and the run waits for it."""
    pid = federation.guard_pid(silo)
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_killed_courier_is_invited_again_and_nothing_is_spent_twice(federation: LocalFederation) -> None:
    before = {silo: entries(federation, silo) for silo in federation.silos}
    with held_at_the_gathering(federation, "silo-1"):
        run = federation.submit(run_config(federation, epsilon=1.0))
        wait_for(lambda: "attending" in kinds(run, "silo-0"))
        home = str(federation.courier_folder("silo-0") / "flower")
        for pid in descendants(MARK, "flwr-clientapp", FLWR_HOME=home):
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: "away" in kinds(run, "silo-0"))
    wait_for_end(run)
    assert kinds(run, "silo-0").count("invited") >= 2
    assert "without" not in kinds(run)
    assert {silo: entries(federation, silo) - before[silo] for silo in federation.silos} == dict.fromkeys(before, 1)


def test_a_killed_guard_comes_back_and_nothing_is_spent_twice(federation: LocalFederation) -> None:
    before = entries(federation, "silo-0")
    run = federation.submit(run_config(federation, epsilon=1.5))
    wait_for(lambda: "gathering" in kinds(run))
    federation.kill_guard("silo-0")
    federation.start_guard("silo-0")
    wait_for_end(run)
    assert "without" not in kinds(run)
    assert entries(federation, "silo-0") == before + 1


@pytest.mark.skipif(not sandbox.landlock_version(), reason="this kernel has no Landlock to keep a courier in its room")
def test_a_hostile_client_app_has_neither_records_nor_ledger(federation: LocalFederation, tmp_path: Path) -> None:
    """The server ships a client app that tries to open what is the guard's alone, and reports what it got."""
    bundle = tmp_path / "bundle"
    shutil.copytree(BUNDLE, bundle)
    guard, courier = federation.guard_folder("silo-0"), federation.courier_folder("silo-0")
    loot = courier / "loot.json"
    targets = [
        str(guard.parent / "records/records.npz"),
        str(guard / "ledger.db"),
        str(guard / "receipts.key"),
        str(guard),
    ]
    memory = f"/proc/{federation.guard_pid('silo-0')}/mem"
    (bundle / "silosynth_bundle/client_app.py").write_text(
        f"""
import json, os
from silosynth.client.courier import app

def attempt(path):
    try:
        return os.listdir(path) if os.path.isdir(path) else len(open(path, "rb").read(16))
    except Exception as error:
        return type(error).__name__

loot = {{path: attempt(path) for path in {[*targets, memory]!r}}}
loot["own folder"] = attempt({str(courier / "courier.toml")!r})
try:
    open({str(loot)!r}, "w").write(json.dumps(loot))
except OSError:
    pass
__all__ = ["app"]
"""
    )
    run = federation.submit(run_config(federation, epsilon=2.0), bundle)
    wait_for_end(run)
    got = json.loads(loot.read_text())
    assert got.pop("own folder") == 16
    assert set(got.values()) == {"PermissionError"}, got


def test_a_killed_silo_is_left_out_and_the_run_says_so(federation: LocalFederation) -> None:
    """Last, since this silo does not come back."""
    config = run_config(federation, epsilon=3.0)
    config["federation"]["grace_seconds"] = 3.0
    with held_at_the_gathering(federation, "silo-1"):
        run = federation.submit(config)
        wait_for(lambda: {"silo-0", "silo-2"} <= {e["silo"] for e in journal(run) if e["kind"] == "attending"})
        federation.kill("silo-2")
        wait_for(lambda: "away" in kinds(run, "silo-2"))
    wait_for_end(run)
    (left_out,) = [entry for entry in journal(run) if entry["kind"] == "without"]
    assert left_out["silo"] == "silo-2"
    manifest = json.loads((run / "release/manifest.json").read_text())
    assert "silo-2" not in json.dumps(manifest)
