"""Is this machine fit to run a silo: Python, Flower, the kernel?"""

from __future__ import annotations

import platform
import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from silosynth.deploy import sandbox
from silosynth.deploy.findings import Finding, ok, problem, warning

_FLOWER = "1.39."  # the last line whose silo hop is gRPC; see pyproject.toml


def examine_machine() -> Iterator[Finding]:
    yield _python()
    yield _flower()
    yield _landlock()


def _python() -> Finding:
    return ok("python", f"Python {platform.python_version()}, silosynth {version('silosynth')}")


def _flower() -> Finding:
    installed, fix = version("flwr"), "reinstall silosynth in a fresh virtual environment"
    if not installed.startswith(_FLOWER):
        return problem("flower", f"flwr {installed} is installed, {_FLOWER}x is needed", fix)
    if shutil.which("flower-supernode", path=str(Path(sys.executable).parent)) is None:
        return problem("flower", f"flower-supernode is not beside {sys.executable}", fix)
    return ok("flower", f"flwr {installed}")


def _landlock() -> Finding:
    found = sandbox.landlock_version()
    if not found:
        return warning(
            "landlock",
            "this kernel has no Landlock: one user's courier cannot be kept out of the records",
            "run `silosynth silo guard` and `silosynth silo courier` as two users, or use Linux 5.13 or newer",
        )
    return ok("landlock", f"version {found}: the courier is kept out of guard and records")
