"""Child processes of a local federation: started with logs, watched, and never left behind."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from silosynth.common.errors import RunFailed

_MARK = "SILOSYNTH_FEDERATION"  # in every child's environment: finds grandchildren that changed their group
_PR_SET_PDEATHSIG = 1
_STOP_SECONDS = 5.0


@dataclass(frozen=True)
class Child:
    name: str
    process: subprocess.Popen[bytes]
    log: Path | None

    def last_words(self, lines: int = 15) -> str:
        if self.log is None:
            return "what it said stands above"
        tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        return f"its log {self.log} ends:\n{tail}"


class Processes:
    """A context manager: on the way out, however that happens, every process of this federation is ended.

    What they say goes to files in `logs`; where there is no such folder, to where this process's own words go.
    """

    def __init__(self, logs: Path | None = None) -> None:
        self.children: dict[str, Child] = {}
        self._logs = logs
        self._mark = uuid.uuid4().hex
        if logs is not None:
            logs.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Processes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop_all()

    def environment(self, **extra: str) -> dict[str, str]:
        """This process's environment with our interpreter's programs first, and the federation's mark."""
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        return {**os.environ, "PATH": path, _MARK: self._mark, **extra}

    def start(self, name: str, command: Sequence[str], **environment: str) -> Child:
        log = self._logs / f"{name}.log" if self._logs else None
        with log.open("ab") if log else nullcontext() as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT if output else None,
                env=self.environment(**environment),
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
        self.children[name] = Child(name, process, log)
        return self.children[name]

    def wait_until(self, ready: Callable[[], bool], what: str, seconds: float = 300.0) -> None:
        """Poll `ready`, failing early when a child has died; a busy machine may take minutes to start one."""
        ends = time.monotonic() + seconds
        while not ready():
            self.check()
            if time.monotonic() > ends:
                raise RunFailed(f"{what} was not ready after {seconds:g} s; logs are in {self._logs or 'this output'}")
            time.sleep(0.05)

    def alive(self) -> set[str]:
        return {name for name, child in self.children.items() if child.process.poll() is None}

    def check(self, *names: str) -> None:
        """Raise when a child, of those named if any are, has ended by itself."""
        for child in [self.children[name] for name in names or self.children]:
            code = child.process.poll()
            if code is not None:
                raise RunFailed(f"{child.name} ended with code {code}; {child.last_words()}")

    def stop(self, name: str, how: signal.Signals = signal.SIGTERM) -> None:
        """End one child and its process group, and forget it."""
        child = self.children.pop(name)
        _signal_group(child.process.pid, how)
        try:
            child.process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            _signal_group(child.process.pid, signal.SIGKILL)
            child.process.wait()

    def stop_all(self) -> None:
        for child in self.children.values():
            _signal_group(child.process.pid, signal.SIGTERM)
        for name in list(self.children):
            self.stop(name)
        while left := marked_processes(self._mark):
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)


def marked_processes(mark: str) -> list[int]:
    """Processes, however far removed, that a federation with this mark started (Linux; elsewhere groups suffice)."""
    needle = f"{_MARK}={mark}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if needle in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


def _signal_group(pid: int, how: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, how)


def _die_with_parent() -> None:
    """If the runner is killed outright, the kernel ends its children."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
