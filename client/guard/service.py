"""The guard on the wire: gRPC on a Unix socket or a loopback port, for the courier alone."""

from __future__ import annotations

import math
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue

import grpc

from silosynth.client.config import socket_path
from silosynth.client.guard.guard import Guard
from silosynth.client.guard.ledger import Answered
from silosynth.common import channels
from silosynth.common.errors import ConfigError, SilosynthError, SiloUnavailable
from silosynth.common.heads import Head
from silosynth.protos.v1 import guard_pb2
from silosynth.protos.v1.guard_pb2_grpc import GuardServicer, add_GuardServicer_to_server

_MAX_CALLS = 16
_MAX_ANSWERS = 8  # leaves calls for Describe and Budget
_GRACE_SECONDS = 5.0
_PROGRESS_STEPS = 20
_PROGRESS_SECONDS = 0.2


class GuardService(GuardServicer):
    """Carries a guard's answers; every decision is the guard's."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._workers = ThreadPoolExecutor(_MAX_ANSWERS, thread_name_prefix="answer")
        self._room = threading.BoundedSemaphore(_MAX_ANSWERS)

    def Describe(self, request: guard_pb2.DescribeRequest, context: grpc.ServicerContext) -> guard_pb2.Description:  # noqa: N802
        with _aborting(context):
            return self._guard.describe()

    def Budget(self, request: guard_pb2.BudgetRequest, context: grpc.ServicerContext) -> guard_pb2.BudgetStatus:  # noqa: N802
        with _aborting(context):
            return self._guard.budget()

    def Lacking(self, request: guard_pb2.Question, context: grpc.ServicerContext) -> guard_pb2.Digests:  # noqa: N802
        with _aborting(context):
            return guard_pb2.Digests(digests=self._guard.lacking(request.query))

    def Deposit(  # noqa: N802
        self, request_iterator: Iterator[guard_pb2.ArtifactPart], context: grpc.ServicerContext
    ) -> guard_pb2.Deposited:
        """A stream that breaks off looks like one that ends too early, and leaves nothing behind."""
        parts = channels.until_cut(request_iterator)
        with _aborting(context):
            artifact = next(parts, guard_pb2.ArtifactPart()).digest
            self._guard.deposit(artifact, (part.chunk for part in parts))
            return guard_pb2.Deposited()

    def Answer(self, request: guard_pb2.Question, context: grpc.ServicerContext) -> Iterator[guard_pb2.AnswerPart]:  # noqa: N802
        """Progress, then the release in chunks or a refusal.

        An answer once begun is finished and stored even if the asker is gone: asked again, it is there.
        """
        try:
            progress: SimpleQueue[guard_pb2.AnswerPart | None] = SimpleQueue()
            future = self._begin(request.query, progress)
            yield from iter(progress.get, None)
            answered = future.result()
            yield guard_pb2.AnswerPart(header=self._header(answered))
            for start in range(0, len(answered.sealed), channels.CHUNK_BYTES):
                yield guard_pb2.AnswerPart(chunk=answered.sealed[start : start + channels.CHUNK_BYTES])
        except SilosynthError as error:
            yield guard_pb2.AnswerPart(refusal=guard_pb2.Refusal(error=type(error).__name__, message=str(error)))

    def Witness(self, request: guard_pb2.Head, context: grpc.ServicerContext) -> guard_pb2.Head:  # noqa: N802
        with _aborting(context):
            return self._guard.witness(Head.from_proto(request)).to_proto()

    def stop(self) -> None:
        """Returns when no answer is under way any more."""
        self._guard.stop()
        self._workers.shutdown()

    def _begin(self, query: bytes, progress: SimpleQueue[guard_pb2.AnswerPart | None]) -> Future[Answered]:
        """Answers outlive calls that were cancelled, so they are counted on their own."""
        if not self._room.acquire(blocking=False):
            raise SiloUnavailable(f"the guard is busy with {_MAX_ANSWERS} answers: ask again later")
        future = self._workers.submit(self._guard.answer, query, _coarse(progress.put))

        def finish(_: Future[Answered]) -> None:
            self._room.release()
            progress.put(None)

        future.add_done_callback(finish)
        return future

    def _header(self, answered: Answered) -> guard_pb2.ReleaseHeader:
        return guard_pb2.ReleaseHeader(
            size=len(answered.sealed),
            budget=self._guard.budget(),
            replayed=answered.replayed,
            head=self._guard.head().to_proto(),
        )


class GuardServer:
    """A served guard. `address` is what couriers dial."""

    def __init__(self, guard: Guard, address: str) -> None:
        self._service = GuardService(guard)
        self._server = grpc.server(
            ThreadPoolExecutor(_MAX_CALLS), options=channels.OPTIONS, maximum_concurrent_rpcs=_MAX_CALLS
        )
        add_GuardServicer_to_server(self._service, self._server)
        self.address = _bind(self._server, address)
        self._server.start()

    def stop(self) -> None:
        """Take no more calls, let those under way end, then return."""
        ended = self._server.stop(_GRACE_SECONDS)
        self._service.stop()
        ended.wait()


def _bind(server: grpc.Server, address: str) -> str:
    path = socket_path(address)
    try:
        if path is None:
            return f"{address.rpartition(':')[0]}:{server.add_insecure_port(address)}"
        _make_way(path)
        with _for_owner_and_group_only():
            server.add_insecure_port(address)
        return address
    except (RuntimeError, OSError) as error:
        raise ConfigError(f"guard.address: cannot listen on {address}: is it free, and its folder writable?") from error


def _make_way(path: Path) -> None:
    """gRPC takes the place of any socket it finds: only one that nobody listens on may be taken."""
    with socket.socket(socket.AF_UNIX) as probe:
        if probe.connect_ex(str(path)) == 0:
            raise ConfigError(f"guard.address: another guard is serving on {path}: stop it first")


@contextmanager
def _for_owner_and_group_only() -> Iterator[None]:
    """A socket is created with the process's mask; changing its mode afterwards would leave it open for a moment."""
    previous = os.umask(0o117)
    try:
        yield
    finally:
        os.umask(previous)


def _coarse(send: Callable[[guard_pb2.AnswerPart], None]) -> Callable[[float], None]:
    """Progress as anyone may see it: in steps of 5 %, not too often.

    Which steps are left out tells of the silo's speed what the time of its answer tells as well.
    """
    last_step, last_time = -1, -math.inf

    def report(fraction: float) -> None:
        nonlocal last_step, last_time
        step, now = int(min(max(fraction, 0.0), 1.0) * _PROGRESS_STEPS), time.monotonic()
        if step > last_step and now - last_time >= _PROGRESS_SECONDS:
            last_step, last_time = step, now
            progress = guard_pb2.Progress(phase="computing", fraction=step / _PROGRESS_STEPS)
            send(guard_pb2.AnswerPart(progress=progress))

    return report


@contextmanager
def _aborting(context: grpc.ServicerContext) -> Iterator[None]:
    """All calls but Answer have no part for a refusal: it travels as the call's status."""
    try:
        yield
    except SilosynthError as error:
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"{type(error).__name__}: {error}")
