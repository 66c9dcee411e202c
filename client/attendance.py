"""Attending a run: one stream to the exchange, questions in, sealed releases out.

Everything here is relaying: the guard decides, this code has nothing to steal. Public artifacts that the guard lacks
for a question are brought to it first. A broken stream is redialled with back-off; the server then asks again, and the
guard answers with the stored bytes.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import grpc

from silosynth.client.config import CourierConfig
from silosynth.common import channels
from silosynth.common.errors import PeerRejected, SiloUnavailable
from silosynth.protos.v1 import exchange_pb2, guard_pb2
from silosynth.protos.v1.exchange_pb2_grpc import ExchangeStub
from silosynth.protos.v1.guard_pb2_grpc import GuardStub

_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0
_GUARD_SECONDS = 10.0
_ARTIFACT_SECONDS = 3600.0
_ARRIVAL_SECONDS = 20.0  # an exchange never reached belongs to a run that is over: make room for the next invitation
_OUTBOX_MESSAGES = 4  # bounds memory while the network is slower than the guard
_REJECTIONS = (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED)


@dataclass(frozen=True)
class Invitation:
    run_id: str
    exchange: str  # host:port


def attend(config: CourierConfig, invitation: Invitation, announce: Callable[[], object] = lambda: None) -> str:
    """Stay until the server says farewell; returns its reason. `announce` is called when a dataset is finished."""
    with grpc.insecure_channel(config.guard_target, options=channels.OPTIONS) as guard_channel:
        guard = GuardStub(guard_channel)
        last_contact, pause, patience = time.monotonic(), _FIRST_PAUSE, _ARRIVAL_SECONDS
        while True:
            visit = _Visit(config, invitation, guard, announce)
            try:
                farewell = visit.stay()
                if farewell is not None:
                    return farewell
            except grpc.RpcError as error:
                if error.code() in _REJECTIONS:
                    raise PeerRejected("the exchange does not know this silo: check the certificate") from error
            if visit.welcomed or not visit.greeted:
                patience = config.patience_seconds
            if visit.welcomed:
                last_contact, pause = time.monotonic(), _FIRST_PAUSE
            if time.monotonic() - last_contact > min(patience, config.patience_seconds):
                raise SiloUnavailable(f"no contact with the {'exchange' if visit.greeted else 'guard'}: gave up")
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)


class _Visit:
    """One stream to the exchange, from hello to farewell or to the cut."""

    def __init__(
        self, config: CourierConfig, invitation: Invitation, guard: GuardStub, announce: Callable[[], object]
    ) -> None:
        self.greeted = False  # by the guard
        self.welcomed = False  # by the exchange
        self._config, self._invitation, self._guard, self._announce = config, invitation, guard, announce
        self._outbox: queue.Queue[exchange_pb2.FromSilo | None] = queue.Queue(_OUTBOX_MESSAGES)

    def stay(self) -> str | None:
        """The farewell's reason, or None when the stream ended without one."""
        hello = self._hello()
        self.greeted = True
        config = self._config
        credentials = channels.client_credentials(config.ca, config.certificate, config.key)
        with grpc.secure_channel(self._invitation.exchange, credentials, options=channels.OPTIONS) as channel:
            self._outbox.put(exchange_pb2.FromSilo(hello=hello))
            exchange = ExchangeStub(channel)
            stream = exchange.Attend(iter(self._outbox.get, None))
            try:
                stream.initial_metadata()  # sent when the exchange has taken our hello, or never
                self.welcomed = stream.is_active()
                for message in stream:
                    kind = message.WhichOneof("part")
                    if kind == "farewell":
                        return str(message.farewell.reason)
                    if kind == "released":
                        self._announce()
                    elif kind == "witnessed":
                        self._send(stream, _head(self._guard, message.witnessed))
                    else:
                        self._relay(stream, exchange, message.ask)
            finally:
                stream.cancel()
                self._wake_sender()
        return None

    def _hello(self) -> exchange_pb2.Hello:
        return exchange_pb2.Hello(
            run_id=self._invitation.run_id,
            description=self._guard.Describe(guard_pb2.DescribeRequest(), timeout=_GUARD_SECONDS, wait_for_ready=True),
            budget=self._guard.Budget(guard_pb2.BudgetRequest(), timeout=_GUARD_SECONDS),
        )

    def _relay(self, stream: grpc.Call, exchange: ExchangeStub, ask: exchange_pb2.Ask) -> None:
        for part in self._answer(exchange, ask.query):
            self._send(stream, exchange_pb2.FromSilo(ticket=ask.ticket, answer=part))

    def _answer(self, exchange: ExchangeStub, query: bytes) -> Iterator[guard_pb2.AnswerPart]:
        """The guard's answer, or a refusal. (One that a cut exchange is to blame for is lost with its stream.)"""
        question = guard_pb2.Question(query=query)
        try:
            for digest in self._guard.Lacking(question, timeout=_GUARD_SECONDS, wait_for_ready=True).digests:
                self._carry(exchange, digest)
            yield from self._guard.Answer(question, wait_for_ready=True, timeout=24 * 3600)
        except grpc.RpcError as error:
            yield guard_pb2.AnswerPart(refusal=_refusal(error))
        except SiloUnavailable as error:
            yield guard_pb2.AnswerPart(refusal=guard_pb2.Refusal(error=type(error).__name__, message=str(error)))

    def _carry(self, exchange: ExchangeStub, digest: str) -> None:
        """From the exchange into the guard, chunk by chunk."""
        request = exchange_pb2.ArtifactRequest(run_id=self._invitation.run_id, digest=digest)
        fetched = exchange.Fetch(request, timeout=_ARTIFACT_SECONDS)
        try:
            self._guard.Deposit(channels.until_cut(fetched), timeout=_ARTIFACT_SECONDS)
        except grpc.RpcError as error:
            fetched.cancel()
            if fetched.code() not in (grpc.StatusCode.OK, grpc.StatusCode.CANCELLED):
                raise SiloUnavailable(f"the silo could not fetch the artifact {digest} from the exchange") from error
            raise

    def _send(self, stream: grpc.Call, message: exchange_pb2.FromSilo) -> None:
        while stream.is_active():
            try:
                return self._outbox.put(message, timeout=1.0)
            except queue.Full:
                continue
        return None  # the stream is cut: the loop over it ends with the reason

    def _wake_sender(self) -> None:
        """Let gRPC's sending thread, which waits in the outbox, end."""
        while not self._outbox.empty():
            self._outbox.get_nowait()
        self._outbox.put_nowait(None)


def _head(guard: GuardStub, witnessed: guard_pb2.Head) -> exchange_pb2.FromSilo:
    """Show the guard what the server last saw of its ledger: its newest head, or its refusal, in its own words."""
    try:
        return exchange_pb2.FromSilo(head=guard.Witness(witnessed, timeout=_GUARD_SECONDS))
    except grpc.RpcError as error:
        if error.code() is not grpc.StatusCode.FAILED_PRECONDITION:
            raise
        return exchange_pb2.FromSilo(answer=guard_pb2.AnswerPart(refusal=_refusal(error)))


def _refusal(error: grpc.RpcError) -> guard_pb2.Refusal:
    """What the guard refused, in its own words; when it is gone, in ours: its errors stay in the silo."""
    if error.code() is grpc.StatusCode.FAILED_PRECONDITION:
        name, _, message = str(error.details()).partition(": ")
        return guard_pb2.Refusal(error=name, message=message)
    message = "the silo's guard stopped answering: its operator finds the reason in the guard's log"
    return guard_pb2.Refusal(error=SiloUnavailable.__name__, message=message)
