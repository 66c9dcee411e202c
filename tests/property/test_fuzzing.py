"""Bytes nobody meant, into every parser and both services: only our own errors come out, and others are served on."""

from __future__ import annotations

import contextlib
import queue
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import grpc
import pytest
import tomli_w
from google.protobuf.message import DecodeError
from support.fake_federation import RUN, Courier, Identities, open_exchange
from support.fake_guard import FakeGuard
from support.guards import (
    COURIER,
    SCHEMA,
    counts_bytes,
    counts_query,
    ignore_progress,
    open_ledger,
    silo_tables,
    toy_guard,
)
from support.moments import SHELF, moments_query, shelved_center

from silosynth.client.config import load_courier, load_silo
from silosynth.client.guard.identity import load_or_create
from silosynth.client.guard.service import GuardServer
from silosynth.common import channels, events
from silosynth.common.config import load
from silosynth.common.errors import SilosynthError, from_wire
from silosynth.common.heads import Head
from silosynth.common.queries import Mixtures, Scores, SufficientStatistics, decode, encode
from silosynth.common.releases import Receipt, open_release, unseal
from silosynth.common.statistics import decode_center
from silosynth.protos.v1 import exchange_pb2, guard_pb2, release_pb2
from silosynth.protos.v1.guard_pb2_grpc import GuardStub
from silosynth.server.config import RunConfig, load_server
from silosynth.server.exchange import Exchange

QUERY = counts_query(50.0)
QUERIES = [
    encode(QUERY),
    encode(
        Mixtures(
            schema=SCHEMA,
            noise_multiplier=50.0,
            mixtures=2,
            sampling_probability=0.5,
            center=0.5,
            clip=1.0,
            count_weight=1.0,
        )
    ),
    encode(
        SufficientStatistics(
            schema=SCHEMA, noise_multiplier=50.0, center=0.5, clip=1.0, class_weight=1.0, count_weight=1.0
        )
    ),
]
MOMENTS = moments_query()
SCORES = Scores(schema=MOMENTS.schema, noise_multiplier=50.0, model=MOMENTS.backbone)
SERVER = {
    "flower": {"fleet": "0.0.0.0:9092", "control": "127.0.0.1:9093"},
    "exchange": {"host": "0.0.0.0", "port": 9094, "ca": "ca.crt", "certificate": "server.crt", "key": "server.key"},
    "silos": [{"name": "toy", "node_key": "toy.pub", "certificate": "0" * 64}],
}
RUN_TABLES = {
    "name": "a run",
    "recipe": "ldpdc",
    "records": {"shape": [8, 8, 1], "classes": 10},
    "privacy": {"epsilon": 1.0},
    "federation": {"silos": ["toy"]},
    "parameters": {"steps": 3},
    "evaluation": {"test": {"source": "digits"}, "steps": 10, "silo_epsilon": 0.5},
}
ODD_VALUES = [
    *("nan", "-inf", "-1", "0", "1e999", "9" * 5000, "true", "1979-05-27", "[]", "{}", "[" * 2000),
    *('""', '"\\u0000"', '"/"', '"unix:\\u0000"', '"127.0.0.1:99999999"'),
]


class Mutator:
    """Random bytes, and valid ones that were cut, flipped, stretched, repeated or spliced."""

    def __init__(self, seed: int, seeds: list[bytes]) -> None:
        self.random = random.Random(seed)
        self._seeds = seeds

    def bytes(self) -> bytes:
        choice, data = self.random.random(), self.random.choice(self._seeds)
        if choice < 0.1:
            return self.random.randbytes(self.random.randrange(300))
        start, stop = sorted(self.random.randrange(len(data) + 1) for _ in range(2))
        if choice < 0.25:
            return data[:start]
        if choice < 0.6:
            return self._flipped(data)
        if choice < 0.75:
            return data[:start] + self.random.randbytes(self.random.randrange(1, 12)) + data[stop:]
        if choice < 0.85:
            return data + data[start:stop]
        return data[:start] + self.random.choice(self._seeds)[start:]

    def toml(self) -> bytes:
        """As often as not still TOML, but with a value nobody would write."""
        lines = self.random.choice(self._seeds).decode().splitlines()
        if self.random.random() < 0.5:
            return self.bytes()
        number = self.random.randrange(len(lines))
        name, separator, _ = lines[number].partition(" = ")
        lines[number] = f"{name}{separator}{self.random.choice(ODD_VALUES)}"
        return "\n".join(lines).encode()

    def _flipped(self, data: bytes) -> bytes:
        flipped = bytearray(data)
        for _ in range(self.random.choice([1, 1, 2, 8])):
            flipped[self.random.randrange(len(flipped))] ^= 1 << self.random.randrange(8)
        return bytes(flipped)


@dataclass(frozen=True)
class Target:
    """A parser, inputs it takes, and how many others it gets for each 100 of all."""

    seeds: list[bytes]
    parse: Callable[[bytes], object]
    share: int
    is_toml: bool = False


def _event(data: bytes) -> object:
    try:
        return events.from_proto(release_pb2.Event.FromString(data))
    except DecodeError:
        return None  # not ours to parse: receipts and ledgers turn it into their own errors, and are targets too


def _from_file(path: Path, parse: Callable[[Path], object]) -> Callable[[bytes], object]:
    def parse_bytes(data: bytes) -> object:
        path.write_bytes(data)
        return parse(path)

    return parse_bytes


def targets(folder: Path) -> dict[str, Target]:
    with closing(open_ledger(folder)) as ledger:
        sealed = [toy_guard(ledger).answer(query, ignore_progress).sealed for query in QUERIES]
        head = ledger.head().to_bytes()
    receipts = [unseal(release)[1] for release in sealed]
    configuration = folder / "fuzzed.toml"

    def toml(tables: dict[str, object], loader: Callable[[Path], object], share: int) -> Target:
        return Target([tomli_w.dumps(tables).encode()], _from_file(configuration, loader), share, is_toml=True)

    return {
        "queries": Target([*QUERIES, encode(MOMENTS), encode(SCORES)], decode, 28),
        "centers": Target([SHELF[shelved_center(MOMENTS, 0)]], lambda data: decode_center(data, MOMENTS), 2),
        "releases": Target(sealed, lambda data: open_release(QUERY, data), 20),
        "receipts": Target([receipt.to_bytes() for receipt in receipts], Receipt.from_bytes, 20),
        "events": Target([receipt.event.to_proto().SerializeToString() for receipt in receipts], _event, 10),
        "heads": Target([head], lambda data: Head.from_bytes(data).verify(), 8),
        "silo.toml": toml(silo_tables(), load_silo, 3),
        "courier.toml": toml(COURIER, load_courier, 3),
        "server.toml": toml(SERVER, load_server, 3),
        "run.toml": toml(RUN_TABLES, lambda path: load(RunConfig, path), 2),
        "keys": Target(
            [(folder / "receipts.key").read_bytes()], _from_file(_private(folder / "fuzzed.key"), load_or_create), 1
        ),
    }


def _private(path: Path) -> Path:
    path.touch(0o600)
    return path


def fuzz(folder: Path, inputs: int, seed: int) -> None:
    """Valid input parses, so its mutations are near misses; all of them end in our errors or in none."""
    report = []
    for name, target in targets(folder).items():
        target.parse(target.seeds[0])
        mutator = Mutator(seed, target.seeds)
        count, refused = inputs * target.share // 100, 0
        for _ in range(count):
            data = mutator.toml() if target.is_toml else mutator.bytes()
            try:
                target.parse(data)
            except SilosynthError:
                refused += 1
            except Exception as error:
                raise AssertionError(f"{name}: {type(error).__name__} from {data[:400]!r}") from error
        report.append(f"{name} {count} ({refused} refused)")
    print(f"\n{inputs} inputs, only our errors: {', '.join(report)}")


def test_parsers(tmp_path: Path) -> None:
    fuzz(tmp_path, inputs=5_000, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_parsers_for_long(tmp_path: Path) -> None:
    fuzz(tmp_path, inputs=150_000, seed=2)


# --- the guard's service


@pytest.fixture
def folder() -> Iterator[Path]:
    """The path of a Unix socket must be short; pytest's own folders are not."""
    with tempfile.TemporaryDirectory(prefix="guard-") as name:
        yield Path(name)


def fuzz_guard(folder: Path, inputs: int) -> None:
    """Raw bytes in the place of each request: a refusal of ours, an answer, or gRPC's word for what is no message."""
    questions = [guard_pb2.Question(query=query).SerializeToString() for query in QUERIES]
    with closing(open_ledger(folder)) as ledger:
        guard = toy_guard(ledger, max_values=1000)
        mutator = Mutator(3, [*questions, guard.head().to_bytes()])
        server = GuardServer(guard, f"unix:{folder}/guard.sock")
        outcomes: set[str] = set()
        try:
            with grpc.insecure_channel(server.address) as channel:
                for number in range(inputs):
                    method = ["Answer", "Answer", "Answer", "Witness", "Describe", "Budget"][number % 6]
                    outcomes.add(_call(channel, method, mutator.bytes()))
                status = GuardStub(channel).Budget(guard_pb2.BudgetRequest(), timeout=30)
                parts = list(GuardStub(channel).Answer(guard_pb2.Question(query=counts_bytes(77.0)), timeout=30))
        finally:
            server.stop()
        assert parts[-1].chunk
        assert status.releases == ledger.spent("default").releases - 1
    assert outcomes <= {"answered", "INTERNAL", "QueryError", "PolicyDenied", "BudgetExhausted", "FAILED_PRECONDITION"}
    assert "QueryError" in outcomes
    print(f"\n{inputs} raw requests to the guard: {', '.join(sorted(outcomes))}")


def _call(channel: grpc.Channel, method: str, request: bytes) -> str:
    name, raw = f"/silosynth.v1.Guard/{method}", {"request_serializer": bytes, "response_deserializer": bytes}
    try:
        if method != "Answer":
            channel.unary_unary(name, **raw)(request, timeout=30)
            return "answered"
        last = guard_pb2.AnswerPart.FromString(list(channel.unary_stream(name, **raw)(request, timeout=30))[-1])
        return last.refusal.error or "answered"
    except grpc.RpcError as error:
        return str(error.code().name)


def test_guard_service(folder: Path) -> None:
    fuzz_guard(folder, inputs=120)


@pytest.mark.slow
def test_guard_service_for_long(folder: Path) -> None:
    fuzz_guard(folder, inputs=2_000)


# --- the exchange, from the seat of an invited silo gone bad


class BadCourier:
    """Says hello as it should, then whatever it likes."""

    def __init__(self, identities: Identities, exchange: Exchange, guard: FakeGuard) -> None:
        self._guard, self._outbox = guard, queue.Queue[bytes | None]()
        config = identities.courier(guard.silo, guard.address)
        credentials = channels.client_credentials(config.ca, config.certificate, config.key)
        self._channel = grpc.secure_channel(exchange.address, credentials)

    def attend(self, talk: Callable[[int], list[bytes]]) -> None:
        """Answer the first question with `talk` of its ticket, then hang up."""
        description = self._guard.Describe(None, None)  # type: ignore[arg-type]
        hello = exchange_pb2.FromSilo(hello=exchange_pb2.Hello(run_id=RUN, description=description))
        self._outbox.put(hello.SerializeToString())
        attend = self._channel.stream_stream("/silosynth.v1.Exchange/Attend", bytes, exchange_pb2.ToSilo.FromString)
        with self._channel, contextlib.suppress(grpc.RpcError):
            for message in attend(iter(self._outbox.get, None), timeout=60):
                if message.WhichOneof("part") == "witnessed":
                    head = exchange_pb2.FromSilo(head=self._guard.head().to_proto())
                    self._outbox.put(head.SerializeToString())
                if message.WhichOneof("part") == "ask":
                    for answer in [*talk(message.ask.ticket), None]:
                        self._outbox.put(answer)
        self._outbox.put(None)


def answer(ticket: int, **part: object) -> bytes:
    return exchange_pb2.FromSilo(ticket=ticket, answer=guard_pb2.AnswerPart(**part)).SerializeToString()


def nasty_talk(guard: FakeGuard) -> dict[str, Callable[[int], list[bytes]]]:
    sealed, head = guard.sealed(encode(QUERY)), guard.head()
    far = replace(head, sequence=2**64 - 1, hash=bytes(32))
    far = replace(far, signature=guard._key.sign(far.signed_bytes()))

    def release(ticket: int, head: Head, size: int = len(sealed), content: bytes = sealed) -> list[bytes]:
        header = guard_pb2.ReleaseHeader(size=size, head=head.to_proto())
        return [answer(ticket, header=header), answer(ticket, chunk=content)]

    return {
        "a release, then another": lambda ticket: 2 * release(ticket, head),
        "a head beyond 63 bits": lambda ticket: release(ticket, far),
        "a head of nobody": lambda ticket: release(ticket, Head("", 0, b"", b"")),
        "an empty release": lambda ticket: release(ticket, head, size=0, content=b""),
        "a release that never ends": lambda ticket: release(ticket, head, size=60_000)[:1],
        "a release with more to it": lambda ticket: release(ticket, head, content=sealed + b"more"),
        "odd progress": lambda ticket: [
            answer(ticket, progress=guard_pb2.Progress(phase="\0\n\x7f" * 1000, fraction=fraction))
            for fraction in (float("nan"), float("inf"), -1.0)
        ],
        "an odd refusal": lambda ticket: [answer(ticket, refusal=guard_pb2.Refusal(error="KeyboardInterrupt"))],
        "no part": lambda ticket: [answer(ticket), b"", exchange_pb2.FromSilo(ticket=ticket).SerializeToString()],
        "no message": lambda ticket: [b"\xff" * 40],
        "another hello": lambda ticket: [exchange_pb2.FromSilo(hello=exchange_pb2.Hello()).SerializeToString()],
    }


def fuzz_exchange(folder: Path, rounds: int) -> None:
    identities = Identities(folder)
    with (
        FakeGuard("good", folder) as good,
        FakeGuard("bad", folder) as bad,
        open_exchange(identities, ["good", "bad"]) as exchange,
    ):
        courier = Courier(identities.courier("good", good.address), exchange.address)
        talks = nasty_talk(bad)
        mutator = Mutator(4, [message for talk in talks.values() for message in talk(1) if message])

        def garble(ticket: int) -> list[bytes]:
            garbled = [mutator.bytes() for _ in range(20)]
            return [answer(ticket, chunk=data) if mutator.random.random() < 0.2 else data for data in garbled]

        names = list(talks) + ["garbled"] * rounds
        for name in names:
            _ask_with_one_bad_silo(name, exchange, BadCourier(identities, exchange, bad), talks.get(name, garble))
        assert courier.outcome is None
        assert exchange.present() == ["good"]
    print(f"\n{len(names)} bad visits to the exchange: the other silo was asked and heard each time")


def _ask_with_one_bad_silo(name: str, exchange: Exchange, bad: BadCourier, talk: Callable[[int], list[bytes]]) -> None:
    visit = threading.Thread(target=bad.attend, args=(talk,), daemon=True)
    visit.start()
    while visit.is_alive() and "bad" not in exchange.present():
        time.sleep(0.01)
    outcome: dict[str, SilosynthError | None] = {}

    def ask() -> None:
        def accept(silo: str, sealed: bytes) -> None:
            open_release(QUERY, sealed)

        outcome.update(exchange.ask(encode(QUERY), ["good", "bad"], 3, accept, grace=0.2, deadline=20.0))

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(60)
    assert outcome.keys() == {"good", "bad"}, f"{name}: the exchange never came back"
    assert outcome["good"] is None, f"{name}: {outcome['good']}"
    visit.join(60)
    assert not visit.is_alive(), name


def test_exchange(folder: Path) -> None:
    fuzz_exchange(folder, rounds=4)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_exchange_for_long(folder: Path) -> None:
    fuzz_exchange(folder, rounds=150)


def test_errors_by_name() -> None:
    """Whatever a peer names becomes one of our errors."""
    mutator = Mutator(5, [b"LedgerError", b"BudgetExhausted", b"Exception", b"__class__"])
    for _ in range(1000):
        assert isinstance(from_wire(mutator.bytes().decode("latin-1"), "message"), SilosynthError)
