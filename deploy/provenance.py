"""Whose code measured something, and where: a figure without them cannot be repeated."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

import torch

from silosynth.server.attacks.report import Machine


def commit() -> str | None:
    """Of the code that is loaded; None where it is installed without its history."""
    command = ["git", "describe", "--always", "--dirty"]
    done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


def this_machine() -> Machine:
    return Machine(
        processor=_processor(),
        cores=os.cpu_count() or 1,
        python=platform.python_version(),
        torch=str(torch.__version__),
    )


def _processor() -> str:
    """The model's name where Linux tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
