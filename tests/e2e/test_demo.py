"""`silosynth demo` as a person runs it: real processes, real Flower, TLS on."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.descendants import descendants, marked_environment

from silosynth.common.publication import verify_release

SILOSYNTH = str(Path(sys.executable).parent / "silosynth")


def run_demo(folder: Path, *options: str) -> tuple[subprocess.CompletedProcess[str], list[int]]:
    mark, environment = marked_environment()
    done = subprocess.run(
        [SILOSYNTH, "demo", "--folder", str(folder), "--format", "json", *options],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    return done, descendants(mark)


def test_the_demo_ends_with_a_dataset_a_picture_and_a_bill(tmp_path: Path) -> None:
    done, left = run_demo(tmp_path / "demo", "--silos", "2", "--epsilon", "6", "--budget", "7")
    assert done.returncode == 0, done.stderr
    assert left == []
    summary = json.loads(done.stdout)
    release = Path(summary["release"])
    verify_release(release)
    assert summary["floor"] < summary["accuracy"] <= 1
    assert summary["floor"] < summary["ceiling"] <= 1
    with Image.open(summary["picture"]) as picture:
        assert picture.width > 100
    with np.load(release / "data/train.npz", allow_pickle=False) as data:
        assert len(data["images"]) == len(data["labels"]) > 0
    for silo in summary["silos"]:
        assert 5.5 < silo["epsilon_spent"] <= 6
        assert silo["epsilon_total"] == 7


def test_a_run_over_budget_ends_with_code_11_and_the_three_figures(tmp_path: Path) -> None:
    done, left = run_demo(tmp_path / "demo", "--silos", "1", "--epsilon", "6", "--budget", "2")
    assert done.returncode == 11, done.stderr
    assert left == []
    message = done.stderr.lower()
    assert "requested" in message
    assert "remaining" in message
    assert "would fit" in message


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_demo_leaves_no_process(tmp_path: Path, how: signal.Signals) -> None:
    mark, environment = marked_environment()
    command = [SILOSYNTH, "demo", "--folder", str(tmp_path / "demo"), "--silos", "1"]
    demo = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(lambda: bool(descendants(mark, "deploy.supernode")), demo)
    os.kill(demo.pid, how)
    demo.wait(30)
    wait_for(lambda: not descendants(mark))


def test_a_failed_child_ends_the_demo_and_everything_else(tmp_path: Path) -> None:
    mark, environment = marked_environment()
    command = [SILOSYNTH, "demo", "--folder", str(tmp_path / "demo"), "--silos", "1"]
    demo = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: bool(descendants(mark, "flower-superlink")), demo)
    for pid in descendants(mark, "flower-superlink"):
        os.kill(pid, signal.SIGKILL)
    _, errors = demo.communicate(timeout=60)
    assert demo.returncode == 22, errors
    assert "superlink" in errors.lower()
    assert descendants(mark) == []


def wait_for(condition: object, demo: subprocess.Popen[str] | None = None, seconds: float = 60.0) -> None:
    ends = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < ends, "waited too long"
        assert demo is None or demo.poll() is None, "the demo ended too early"
        time.sleep(0.05)
