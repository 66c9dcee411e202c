"""The exchange: a gRPC stream to every silo of a run, dialled by the silos, mutual TLS.

Beside it silos fetch the public artifacts of the run's queries that their guards lack.

Each silo has a seat. A question stays on the seat until it is answered, refused or given up, so a silo that
redials is simply asked again. At most two releases are taken in at once (gRPC's flow control holds the others
back), so memory does not grow with the number of silos.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import grpc

from silosynth.common import channels
from silosynth.common.errors import (
    ConfigError,
    LedgerRolledBack,
    SilosynthError,
    SiloUnavailable,
    VerificationFailed,
    from_wire,
)
from silosynth.common.heads import Head
from silosynth.protos.v1 import exchange_pb2, guard_pb2
from silosynth.protos.v1.exchange_pb2_grpc import ExchangeServicer, add_ExchangeServicer_to_server
from silosynth.server.config import ExchangeSettings
from silosynth.server.journal import Journal
from silosynth.server.witness import Witness

Accept = Callable[[str, bytes], None]
_INTAKES_AT_ONCE = 2
_SEALED_OVERHEAD_BYTES = 1 << 16
_HELLO_SECONDS = 30.0


@dataclass
class _Question:
    """One question put to one silo."""

    ticket: int
    query: bytes
    size_limit: int
    accept: Accept
    done: threading.Event = field(default_factory=threading.Event)
    error: SilosynthError | None = None
    _claim: threading.Lock = field(default_factory=threading.Lock)

    def claim(self) -> bool:
        """True for the one caller who may settle this question: answer, refusal and giving up race."""
        return self._claim.acquire(blocking=False)

    def finish(self, error: SilosynthError | None = None) -> None:
        self.error = error
        self.done.set()

    def fail(self, error: SilosynthError) -> None:
        if self.claim():
            self.finish(error)


class _Seat:
    """One silo's place: its live stream if any, and the question it owes an answer to."""

    def __init__(self, silo: str) -> None:
        self.silo = silo
        self.hello: exchange_pb2.Hello | None = None
        self.question: _Question | None = None
        self.left_out: SilosynthError | None = None
        self.away_since = time.monotonic()
        self._outbox: queue.Queue[exchange_pb2.ToSilo | None] | None = None
        self._lock = threading.Lock()

    @property
    def present(self) -> bool:
        return self._outbox is not None

    def sit(self, hello: exchange_pb2.Hello) -> queue.Queue[exchange_pb2.ToSilo | None]:
        """A new stream takes the seat; the courier that held it is told to leave, or the two would take turns."""
        with self._lock:
            if self._outbox is not None:
                self._outbox.put(_farewell_message("another courier of this silo has taken over"))
            outbox: queue.Queue[exchange_pb2.ToSilo | None] = queue.Queue()
            self._outbox = outbox
            self.hello = hello
            if self.question is not None and not self.question.done.is_set():
                outbox.put(_ask_message(self.question))
            return outbox

    def leave(self, outbox: queue.Queue[exchange_pb2.ToSilo | None]) -> bool:
        """True when the seat is now empty, False when a newer stream had taken it."""
        with self._lock:
            outbox.put(None)
            if self._outbox is not outbox:
                return False
            self._outbox, self.away_since = None, time.monotonic()
            return True

    def put(self, question: _Question) -> None:
        with self._lock:
            self.question = question
            if self.left_out is not None:
                question.fail(self.left_out)
            elif self._outbox is not None:
                self._outbox.put(_ask_message(question))

    def leave_out(self, error: SilosynthError) -> None:
        """This silo takes no part in the run any more."""
        with self._lock:
            self.left_out = error
            if self.question is not None:
                self.question.fail(error)

    def tell(self, message: exchange_pb2.ToSilo) -> None:
        with self._lock:
            if self._outbox is not None:
                self._outbox.put(message)


class Exchange(ExchangeServicer):
    """Serves the silos of one run. `silos` tells the certificate, by its SHA-256, that each must show."""

    def __init__(
        self, run_id: str, silos: Mapping[str, str], settings: ExchangeSettings, journal: Journal, witness: Witness
    ) -> None:
        self._run_id, self._journal, self._certificates = run_id, journal, dict(silos)
        self._witness = witness
        self._seats = {silo: _Seat(silo) for silo in silos}
        self._intake = threading.BoundedSemaphore(_INTAKES_AT_ONCE)
        self._last_ticket = 0
        self._artifacts: dict[str, bytes] = {}
        self._closing = threading.Event()
        # A seat holds a thread while its stream lives, and another while it fetches; the rest is room for redials and
        # strangers to be turned away.
        self._server = grpc.server(ThreadPoolExecutor(3 * len(silos) + 4), options=channels.OPTIONS)
        add_ExchangeServicer_to_server(self, self._server)
        credentials = channels.server_credentials(settings.ca, settings.certificate, settings.key)
        port = _bind(self._server, settings, credentials)
        self.address = f"{settings.public_host}:{port}"
        self._server.start()

    def present(self) -> list[str]:
        return [silo for silo, seat in self._seats.items() if seat.present]

    def left_out(self) -> dict[str, SilosynthError]:
        """The silos this run goes on without, and why."""
        return {silo: seat.left_out for silo, seat in self._seats.items() if seat.left_out is not None}

    def hello(self, silo: str) -> exchange_pb2.Hello | None:
        """What the silo last said of itself."""
        return self._seats[silo].hello

    def offer(self, artifacts: Mapping[str, bytes]) -> None:
        """From now on, until the run ends, its silos can fetch these."""
        self._artifacts |= artifacts

    def withdraw(self, artifacts: Iterable[str]) -> None:
        """Nobody will need these again."""
        for digest in artifacts:
            self._artifacts.pop(digest, None)

    def ask(
        self, query: bytes, silos: list[str], values: int, accept: Accept, grace: float, deadline: float
    ) -> dict[str, SilosynthError | None]:
        """Put `query` to `silos` and hand each sealed release to `accept` as it arrives.

        Returns the silos asked with None for those whose release was accepted, else the reason it was not.
        """
        questions = {}
        for silo in silos:
            self._last_ticket += 1
            limit = 8 * values + _SEALED_OVERHEAD_BYTES
            questions[silo] = _Question(self._last_ticket, query, limit, accept)
            self._seats[silo].put(questions[silo])
        ends = time.monotonic() + deadline
        while any(not question.done.is_set() for question in questions.values()):
            self._give_up_on_absent(questions, grace, ends)
            next((q for q in questions.values() if not q.done.is_set()), _ANSWERED).done.wait(0.2)
        return {silo: question.error for silo, question in questions.items()}

    def announce(self) -> None:
        """Tell everyone present that the catalog has a new dataset."""
        self._tell_all(exchange_pb2.ToSilo(released=exchange_pb2.Released()))

    def dismiss(self, reason: str) -> None:
        """Say farewell to everyone and stop serving."""
        self._closing.set()
        self._tell_all(_farewell_message(reason))
        self._server.stop(grace=5.0).wait()

    def _tell_all(self, message: exchange_pb2.ToSilo) -> None:
        for seat in self._seats.values():
            seat.tell(message)

    def _give_up_on_absent(self, questions: dict[str, _Question], grace: float, ends: float) -> None:
        now = time.monotonic()
        for silo, question in questions.items():
            seat = self._seats[silo]
            if not seat.present and now - seat.away_since > grace:
                question.fail(SiloUnavailable(f"{silo} has been away for more than {grace:g} s"))
            if now > ends:
                question.fail(SiloUnavailable(f"{silo} took too long to answer"))

    def Attend(  # noqa: N802 (the name is the wire contract's)
        self, request_iterator: Iterator[exchange_pb2.FromSilo], context: grpc.ServicerContext
    ) -> Iterator[exchange_pb2.ToSilo]:
        seat, hello = self._welcome(request_iterator, context)
        context.send_initial_metadata(())  # the courier now knows that it was let in
        try:
            yield from self._compare_heads(seat, hello, request_iterator, context)
        except SilosynthError as error:
            self._leave_out(seat, error)
            yield _farewell_message(str(error))
            return
        outbox = seat.sit(hello)
        self._journal.write("attending", silo=seat.silo, **_public_facts(hello))
        reader = threading.Thread(target=self._read, args=(seat, outbox, request_iterator), daemon=True)
        reader.start()
        try:
            for message in iter(outbox.get, None):
                yield message
                if message.WhichOneof("part") == "farewell":
                    return
        finally:
            if seat.leave(outbox) and not self._closing.is_set():
                self._journal.write("away", silo=seat.silo)

    def Fetch(  # noqa: N802
        self, request: exchange_pb2.ArtifactRequest, context: grpc.ServicerContext
    ) -> Iterator[guard_pb2.ArtifactPart]:
        seat = self._seat_of(context)
        content = self._artifacts.get(request.digest)
        if request.run_id != self._run_id or content is None:
            context.abort(grpc.StatusCode.NOT_FOUND, "this run has no such artifact")
        self._journal.write("fetching", silo=seat.silo, digest=request.digest, bytes=len(content))
        yield guard_pb2.ArtifactPart(digest=request.digest)
        for start in range(0, len(content), channels.CHUNK_BYTES):
            yield guard_pb2.ArtifactPart(chunk=content[start : start + channels.CHUNK_BYTES])

    def _seat_of(self, context: grpc.ServicerContext) -> _Seat:
        """Who is it? The certificate says so."""
        name = channels.peer_name(context)
        seat = self._seats.get(name)
        if seat is None or self._certificates[name] != channels.peer_certificate(context):
            context.abort(grpc.StatusCode.PERMISSION_DENIED, "this silo is not invited")
        return seat

    def _welcome(
        self, requests: Iterator[exchange_pb2.FromSilo], context: grpc.ServicerContext
    ) -> tuple[_Seat, exchange_pb2.Hello]:
        """The hello must agree with the certificate."""
        seat = self._seat_of(context)
        hello = _next(requests, context).hello
        if hello.run_id != self._run_id or hello.description.silo != seat.silo:
            context.abort(grpc.StatusCode.PERMISSION_DENIED, "the hello does not match the invitation")
        return seat, hello

    def _compare_heads(
        self,
        seat: _Seat,
        hello: exchange_pb2.Hello,
        requests: Iterator[exchange_pb2.FromSilo],
        context: grpc.ServicerContext,
    ) -> Iterator[exchange_pb2.ToSilo]:
        """Show the guard the head we kept; what it answers proves that its ledger has come at least as far.

        The head of the hello proves less: releases to another run may have been faster than it.
        """
        head = _head_by(hello.description.public_key, hello.description.head)
        self._witness.meet(head, seat.silo, self._certificates[seat.silo])
        known = self._witness.recall(seat.silo, head.public_key)
        if known is not None:
            yield exchange_pb2.ToSilo(witnessed=known.to_proto())
            reply = _next(requests, context)
            if reply.WhichOneof("part") != "head":
                raise from_wire(reply.answer.refusal.error, f"{seat.silo}: {reply.answer.refusal.message}")
            head = _head_by(head.public_key, reply.head)
        self._witness.confirm(head)

    def _leave_out(self, seat: _Seat, error: SilosynthError) -> None:
        kind = "rolled_back" if isinstance(error, LedgerRolledBack) else "left_out"
        self._journal.write(kind, silo=seat.silo, error=type(error).__name__, message=str(error))
        seat.leave_out(error)

    def _read(
        self,
        seat: _Seat,
        outbox: queue.Queue[exchange_pb2.ToSilo | None],
        requests: Iterator[exchange_pb2.FromSilo],
    ) -> None:
        try:
            for message in requests:
                question = seat.question
                if question is not None and message.ticket == question.ticket:
                    self._hear(seat, question, message.answer, requests)
        except grpc.RpcError:
            pass  # the stream broke: the seat is free until the silo redials
        finally:
            outbox.put(None)

    def _hear(
        self,
        seat: _Seat,
        question: _Question,
        part: guard_pb2.AnswerPart,
        requests: Iterator[exchange_pb2.FromSilo],
    ) -> None:
        kind = part.WhichOneof("part")
        if kind == "progress":
            fraction = part.progress.fraction if 0 <= part.progress.fraction <= 1 else 0.0
            self._journal.write("progress", silo=seat.silo, phase=part.progress.phase[:40], fraction=fraction)
        elif kind == "refusal":
            question.fail(from_wire(part.refusal.error, f"{seat.silo}: {part.refusal.message}"))
        elif kind == "header":
            with self._intake:
                sealed = _collect(part.header.size, question, requests)
                if sealed is not None:
                    self._settle(seat, question, part.header, sealed)

    def _settle(self, seat: _Seat, question: _Question, header: guard_pb2.ReleaseHeader, sealed: bytes) -> None:
        if not question.claim():
            return  # given up meanwhile: a late answer must not be counted
        outcome: SilosynthError | None = SiloUnavailable(f"{seat.silo}'s release could not be taken in")
        try:
            self._take_in(seat, question, header, sealed)
            outcome = None
        except SilosynthError as error:
            outcome = error
        finally:  # whatever happened: nobody else may finish a question that was claimed, and `ask` waits for it
            question.finish(outcome)

    def _take_in(self, seat: _Seat, question: _Question, header: guard_pb2.ReleaseHeader, sealed: bytes) -> None:
        public_key = seat.hello.description.public_key if seat.hello is not None else b""
        self._witness.note(_head_by(public_key, header.head))
        question.accept(seat.silo, sealed)
        self._journal.write(
            "released",
            silo=seat.silo,
            bytes=len(sealed),
            replayed=header.replayed,
            epsilon_spent=header.budget.epsilon_spent,
            epsilon_total=header.budget.epsilon_total,
        )


def _bind(server: grpc.Server, settings: ExchangeSettings, credentials: grpc.ServerCredentials) -> int:
    address = f"{settings.host}:{settings.port}"
    try:
        return server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise ConfigError(
            f"exchange: cannot listen on {address}: another run holds the port, or exchange.host is not this machine's"
        ) from error


def _next(requests: Iterator[exchange_pb2.FromSilo], context: grpc.ServicerContext) -> exchange_pb2.FromSilo:
    patience = threading.Timer(_HELLO_SECONDS, context.cancel)
    patience.start()
    try:
        message = next(requests, None)
    finally:
        patience.cancel()
    if message is None:
        context.abort(grpc.StatusCode.CANCELLED, "the stream ended before it began")
    return message


def _head_by(public_key: bytes, message: guard_pb2.Head) -> Head:
    head = Head.from_proto(message)
    if head.public_key != public_key:
        raise VerificationFailed(f"{head.silo!r} sent the head of another ledger than the one it said hello with")
    return head


def _public_facts(hello: exchange_pb2.Hello) -> dict[str, str | float]:
    """What a silo declares of itself."""
    description, budget = hello.description, hello.budget
    return {
        "dataset": description.dataset,
        "version": description.version,
        "epsilon_spent": budget.epsilon_spent,
        "epsilon_total": budget.epsilon_total,
        "delta": budget.delta,
    }


def _ask_message(question: _Question) -> exchange_pb2.ToSilo:
    return exchange_pb2.ToSilo(ask=exchange_pb2.Ask(ticket=question.ticket, query=question.query))


def _farewell_message(reason: str) -> exchange_pb2.ToSilo:
    return exchange_pb2.ToSilo(farewell=exchange_pb2.Farewell(reason=reason))


def _collect(size: int, question: _Question, requests: Iterator[exchange_pb2.FromSilo]) -> bytes | None:
    """The chunks of one release; None when the stream ended before the last one."""
    if size > question.size_limit:
        question.fail(VerificationFailed(f"a release of {size} bytes is larger than its query allows"))
        return None
    received = bytearray()
    while len(received) < size:
        message = next(requests, None)
        if message is None or message.ticket != question.ticket or not message.answer.chunk:
            return None
        received += message.answer.chunk
    return bytes(received) if len(received) == size else None


_ANSWERED = _Question(0, b"", 0, lambda _silo, _sealed: None)
_ANSWERED.done.set()
