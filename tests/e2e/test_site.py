"""A federation as its people run it: provisioned, filled in, examined, served; every part a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from support.descendants import descendants, marked_environment

from silosynth.common.datasets import load, save_npz
from silosynth.common.partition import partition
from silosynth.deploy import sandbox
from silosynth.deploy.addresses import LOOPBACK, free_port

pytestmark = pytest.mark.skipif(not sandbox.landlock_version(), reason="this kernel has no Landlock: silo run refuses")

SILOSYNTH = str(Path(sys.executable).parent / "silosynth")
SILOS = ("st-mary", "charite")
RUN = {
    "name": "first",
    "recipe": "prototypes",
    "records": {"shape": [8, 8, 1], "classes": 10},
    "privacy": {"epsilon": 2.0, "delta": 1e-5},
    "federation": {"silos": list(SILOS), "quorum": 2},
}


@dataclass
class Site:
    """The folder of a federation, and the commands that run on it."""

    folder: Path
    mark: str
    environment: dict[str, str]
    running: dict[str, subprocess.Popen[str]] = field(default_factory=dict)

    def kit(self, silo: str) -> Path:
        return self.folder / "f/kits" / silo

    @property
    def server(self) -> Path:
        return self.folder / "f/server"

    def command(self, *arguments: str, code: int = 0) -> Any:
        """Run a command to its end; returns the JSON document it prints."""
        command = [SILOSYNTH, *arguments, "--format", "json"]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == code, done.stdout + done.stderr
        return json.loads(done.stdout) if done.stdout else done.stderr

    def start(self, name: str, *arguments: str) -> None:
        log = (self.folder / f"{name}.log").open("w")
        with log:
            self.running[name] = subprocess.Popen(
                [SILOSYNTH, *arguments], env=self.environment, stdout=log, stderr=subprocess.STDOUT, text=True
            )

    def said(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def wait_for(self, condition: Callable[[], bool], seconds: float = 90.0) -> None:
        ends = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < ends, self.all_said()
            time.sleep(0.05)

    def all_said(self) -> str:
        """The last words of every process, our own and those below them."""
        logs = [*self.folder.glob("*.log"), *self.folder.glob("f/**/logs/*.log")]
        return "\n".join(f"{log.relative_to(self.folder)}:\n{log.read_text()[-2000:]}" for log in logs)

    def stop(self, name: str) -> int:
        process = self.running.pop(name)
        process.send_signal(signal.SIGINT)
        return process.wait(30)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """In a folder with a short path: a socket's has narrow limits."""
    with tempfile.TemporaryDirectory(prefix="silosynth-") as folder:
        site = Site(Path(folder), *marked_environment())
        provision(site)
        try:
            yield site
        finally:
            codes = {name: site.stop(name) for name in list(site.running)}
        assert set(codes.values()) <= {0}, codes
        assert descendants(site.mark) == []


def provision(site: Site) -> None:
    ports = [part for name in ("exchange", "control", "dashboard") for part in (f"--{name}-port", str(free_port()))]
    silos = [option for silo in SILOS for option in ("--silo", silo)]
    site.command("provision", str(site.folder / "f"), "--server", f"{LOOPBACK}:{free_port()}", *silos, *ports)
    train = load("digits", split="train")
    for silo, indices in zip(SILOS, partition("iid", train.labels, len(SILOS), seed=0), strict=True):
        records = site.folder / silo / "records.npz"
        records.parent.mkdir(mode=0o700)
        save_npz(train.take(indices), records)
        fill_in(site.kit(silo) / "guard/silo.toml", records)


def fill_in(toml: Path, records: Path) -> None:
    """As a person would: uncomment, and set what is ours."""
    text = re.sub(r"^# (path|classes|epsilon|delta|mechanisms) =", r"\1 =", toml.read_text(), flags=re.MULTILINE)
    toml.write_text(text.replace("/path/to/records", str(records)).replace('consent = "deny"', 'consent = "auto"'))


def states(site: Site, silo: str) -> dict[str, str]:
    document = site.command("silo", "doctor", "--kit", str(site.kit(silo)))
    return {finding["check"]: finding["state"] for finding in document["findings"]}


def test_the_doctor_finds_a_filled_in_kit_healthy(site: Site) -> None:
    assert {check for check, state in states(site, "st-mary").items() if state != "ok"} == {"fleet port"}


def test_an_open_key_is_a_problem_with_exit_code_3(site: Site) -> None:
    key = site.kit("st-mary") / "courier/silo.key"
    key.chmod(0o644)
    document = site.command("silo", "doctor", "--kit", str(site.kit("st-mary")), code=3)
    key.chmod(0o600)
    assert document["ok"] is False


def test_commands_say_what_they_lack(site: Site) -> None:
    assert "nothing to do" in site.command("provision", str(site.folder / "f"), code=3)
    assert "registered already" in site.command("provision", str(site.folder / "f"), "--add-silo", "charite", code=3)


def test_server_and_silos_run_to_a_release(site: Site) -> None:
    site.start("server", "server", "run", "--folder", str(site.server), "--format", "json")
    site.wait_for(lambda: "fleet" in site.said("server"))
    for silo in SILOS:
        site.start(silo, "silo", "run", "--kit", str(site.kit(silo)))
    for silo in SILOS:
        site.wait_for(lambda silo=silo: "Guard: ready" in site.said(silo))  # type: ignore[misc]
    assert set(states(site, "st-mary").values()) == {"ok"}
    outcome, submitted = run(site)
    assert outcome["state"] == "finished"
    assert 1.5 < outcome["silos"]["charite"]["spent"] <= 2.0
    assert site.command("run", "list", "--server", str(site.server))[0]["config_digest"] == submitted["config_digest"]
    subprocess.run([SILOSYNTH, "release", "verify", outcome["release"]], check=True, env=site.environment)
    for silo in SILOS:  # each pulls it by itself, since its courier was told of it
        site.wait_for((site.kit(silo) / "releases/first/1").is_dir, seconds=30)


def run(site: Site) -> tuple[Any, Any]:
    toml = site.folder / "run.toml"
    toml.write_text(tomli_w.dumps(RUN))
    submitted = site.command("run", "start", str(toml), "--server", str(site.server))
    return site.command("run", "watch", str(submitted["run"]), "--server", str(site.server)), submitted


def test_a_dead_superlink_is_started_again_aloud_and_a_repeated_run_is_free(site: Site) -> None:
    for pid in descendants(site.mark, "flower-superlink"):
        os.kill(pid, signal.SIGKILL)
    site.wait_for(lambda: "superlink ended with code -9: starting it again" in re.sub(r"\s+", " ", site.said("server")))
    site.wait_for(lambda: states(site, "charite")["fleet port"] == "ok")
    outcome, submitted = run(site)
    assert submitted["run"] == 2
    assert 1.5 < outcome["silos"]["charite"]["spent"] <= 2.0


def test_a_dead_dashboard_is_started_again_aloud(site: Site) -> None:
    address = next(json.loads(line) for line in site.said("server").splitlines() if line.startswith("{"))["dashboard"]

    def shows_the_runs() -> bool:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{address}/runs.json", timeout=5) as answer:
            return [run["number"] for run in json.load(answer)["data"]["runs"]] == [2, 1]
        return False

    site.wait_for(shows_the_runs)
    for pid in descendants(site.mark, "silosynth.server.dashboard.process"):
        os.kill(pid, signal.SIGKILL)
    site.wait_for(lambda: "The dashboard ended: starting it again" in site.said("server"))
    site.wait_for(shows_the_runs)
    assert site.running["server"].poll() is None


def test_a_removed_silo_is_turned_out_while_the_server_runs(site: Site) -> None:
    site.command("provision", str(site.folder / "f"), "--remove-silo", "charite")
    site.wait_for(lambda: site.running["charite"].poll() is not None)
    assert site.running.pop("charite").returncode == 22, site.said("charite")
    assert "Both are ended" in site.said("charite")
    toml = site.folder / "run.toml"
    assert "charite not registered" in site.command("run", "start", str(toml), "--server", str(site.server), code=3)
