"""A guard as a process of its own that tests can kill: at any instant, or at a named step of its next commit.

Run as a program, this file is the real guard but for one thing: it kills itself at the step its environment names.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

import grpc
import tomli_w

from silosynth.client import guard_process
from silosynth.client.guard.ledger import Ledger, Step
from silosynth.common.datasets import save_npz
from silosynth.common.datasets.records import Records
from silosynth.protos.v1 import guard_pb2
from silosynth.protos.v1.guard_pb2_grpc import GuardStub

_KILL_AT = "SILOSYNTH_TEST_KILL_AT"
_ASK_SECONDS = 60.0


def write_silo(folder: Path, tables: dict[str, Any], records: Records) -> Path:
    """The records and silo.toml of a silo in `folder`; returns the latter's path."""
    save_npz(records, folder / "records.npz")
    path = folder / "silo.toml"
    path.write_text(tomli_w.dumps(tables))
    return path


class GuardProcess:
    """A guard's process from its start until it was killed or stopped; use it in a `with` block."""

    def __init__(self, config: Path, kill_at: Step | None = None) -> None:
        self.address = f"unix:{config.parent}/guard.sock"
        environment = os.environ | ({} if kill_at is None else {_KILL_AT: kill_at.value})
        command = [sys.executable, __file__, "--config", str(config)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)

    def __enter__(self) -> GuardProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def wait_until_ready(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        if not self._process.stdout.readline().startswith(b"guard ready"):
            raise AssertionError(f"the guard did not start: {self._process.stderr.read().decode()}")

    def kill(self) -> None:
        """SIGKILL: no handler, no clean-up, no goodbye."""
        self._process.kill()
        self._process.communicate()

    def killed_itself(self) -> bool:
        self._process.wait(timeout=_ASK_SECONDS)
        return self._process.returncode == -signal.SIGKILL

    def end(self) -> tuple[int, str]:
        """Wait for a guard that ends by itself; its exit code and what it said on stderr."""
        _, stderr = self._process.communicate(timeout=_ASK_SECONDS)
        return self._process.returncode, stderr.decode()

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        self._process.terminate()
        return self.end()[0]


class Asker:
    """A client of a guard's socket. Parts of an answer that never became whole count as no answer."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(address)
        self._stub = GuardStub(self._channel)

    def __enter__(self) -> Asker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._channel.close()

    def parts(self, query: bytes) -> list[guard_pb2.AnswerPart]:
        return list(self._stub.Answer(guard_pb2.Question(query=query), timeout=_ASK_SECONDS))

    def sealed(self, query: bytes) -> tuple[bytes, bool]:
        """The sealed release and whether it is a stored one; an assertion fails if the guard refuses."""
        parts = self.parts(query)
        (header,) = (part.header for part in parts if part.WhichOneof("part") == "header")
        sealed = b"".join(part.chunk for part in parts)
        assert len(sealed) == header.size
        return sealed, header.replayed

    def releases(self) -> int:
        return int(self._stub.Budget(guard_pb2.BudgetRequest(), timeout=_ASK_SECONDS).releases)


def _kill_when_reached(step: Step) -> None:
    if step.value == os.environ.get(_KILL_AT):
        os.kill(os.getpid(), signal.SIGKILL)


class _KillableLedger(Ledger):
    @classmethod
    def open(cls, *arguments: Any, **options: Any) -> Ledger:
        return super().open(*arguments, **options, checkpoint=_kill_when_reached)


if __name__ == "__main__":
    guard_process.Ledger = _KillableLedger  # type: ignore[misc]
    sys.exit(guard_process.main())
