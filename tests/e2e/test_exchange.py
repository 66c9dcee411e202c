"""The stream between silos and server: real gRPC, real mutual TLS, couriers in threads, fake guards."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest
from support.fake_federation import RUN, Courier, Identities, open_exchange
from support.fake_guard import FakeGuard
from support.relay import CuttableRelay, wait_for

from silosynth.common import channels
from silosynth.common.errors import (
    BudgetExhausted,
    ConsentPending,
    LedgerRolledBack,
    PeerRejected,
    SiloUnavailable,
    VerificationFailed,
)
from silosynth.common.queries import ClassCounts, Mixtures, digest, encode
from silosynth.common.schema import Schema
from silosynth.protos.v1 import exchange_pb2, guard_pb2
from silosynth.protos.v1.exchange_pb2_grpc import ExchangeStub
from silosynth.protos.v1.guard_pb2_grpc import GuardStub
from silosynth.server import assembly as assembly_module
from silosynth.server.assembly import Assembly
from silosynth.server.config import FederationSettings
from silosynth.server.exchange import Exchange
from silosynth.server.journal import Journal

SCHEMA = Schema((4, 4, 1), 3)
COUNTS = ClassCounts(schema=SCHEMA, noise_multiplier=2.0)


@pytest.fixture
def identities(tmp_path: Path) -> Identities:
    return Identities(tmp_path)


@pytest.fixture
def guards(tmp_path: Path) -> Iterator[list[FakeGuard]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(FakeGuard(f"silo-{i}", tmp_path, value=i + 1)) for i in range(3)]


def names(guards: list[FakeGuard]) -> list[str]:
    return [guard.silo for guard in guards]


def assembly(
    exchange: Exchange,
    silos: list[str],
    folder: Path,
    quorum: int = 1,
    grace: float = 5.0,
    consent: float = 60.0,
) -> Assembly:
    settings = FederationSettings(silos=tuple(silos), quorum=quorum, grace_seconds=grace, consent_seconds=consent)
    return Assembly(exchange, settings, Journal(folder / "assembly.jsonl"))


def test_releases_of_all_silos_are_summed(identities: Identities, guards: list[FakeGuard], tmp_path: Path) -> None:
    with open_exchange(identities, names(guards)) as exchange:
        couriers = [Courier(identities.courier(g.silo, g.address), exchange.address) for g in guards]
        asked = assembly(exchange, names(guards), tmp_path)
        summed = asked.ask(COUNTS)
        assert summed.silos == 3
        np.testing.assert_allclose(summed.blocks["counts"], np.full(3, 6 * COUNTS.grid()))
        assert sorted(receipt.silo for receipt in asked.receipts) == names(guards)
    for courier in couriers:
        courier.thread.join(10)
        assert courier.outcome == "the test is over"


def test_a_large_release_travels_in_chunks(identities: Identities, guards: list[FakeGuard], tmp_path: Path) -> None:
    query = Mixtures(
        schema=Schema((64, 64, 3), 10),
        noise_multiplier=2.0,
        mixtures=20,
        sampling_probability=0.5,
        center=0.0,
        clip=1.0,
        count_weight=0.1,
    )
    with open_exchange(identities, names(guards)) as exchange:
        for guard in guards:
            Courier(identities.courier(guard.silo, guard.address), exchange.address)
        summed = assembly(exchange, names(guards), tmp_path).ask(query)
        assert summed.blocks["sums"].min() == summed.blocks["sums"].max() == 6 * query.grid()


def test_a_silo_that_never_comes_is_left_out(identities: Identities, guards: list[FakeGuard], tmp_path: Path) -> None:
    with open_exchange(identities, names(guards)) as exchange:
        for guard in guards[:2]:
            Courier(identities.courier(guard.silo, guard.address), exchange.address)
        summed = assembly(exchange, names(guards), tmp_path, grace=1.0).ask(COUNTS)
        assert summed.silos == 2
    assert '"kind": "without", "silo": "silo-2"' in (tmp_path / "assembly.jsonl").read_text()


def test_refusals_of_all_silos_are_the_runs_reason(
    identities: Identities, guards: list[FakeGuard], tmp_path: Path
) -> None:
    for guard in guards:
        guard.refusal = guard_pb2.Refusal(error="BudgetExhausted", message="requested 3, remaining 1")
    with open_exchange(identities, names(guards)) as exchange:
        for guard in guards:
            Courier(identities.courier(guard.silo, guard.address), exchange.address)
        with pytest.raises(BudgetExhausted, match="requested 3, remaining 1"):
            assembly(exchange, names(guards), tmp_path).ask(COUNTS)


def test_a_stranger_and_a_plaintext_caller_get_nothing(identities: Identities, guards: list[FakeGuard]) -> None:
    with open_exchange(identities, ["silo-0"]) as exchange:
        stranger = Courier(identities.courier("silo-1", guards[1].address), exchange.address)
        stranger.thread.join(10)
        assert isinstance(stranger.outcome, PeerRejected)
        with grpc.insecure_channel(exchange.address) as channel, pytest.raises(grpc.RpcError):
            list(ExchangeStub(channel).Attend(iter([exchange_pb2.FromSilo()]), timeout=3))
        assert exchange.present() == []


def test_a_hello_for_another_run_is_turned_away(identities: Identities, guards: list[FakeGuard]) -> None:
    with open_exchange(identities, ["silo-0"]) as exchange:
        courier = Courier(identities.courier("silo-0", guards[0].address), exchange.address, run_id="run-2")
        courier.thread.join(10)
        assert isinstance(courier.outcome, PeerRejected)


def test_a_release_signed_by_another_silo_is_not_counted(
    identities: Identities, guards: list[FakeGuard], tmp_path: Path
) -> None:
    guards[0].sealed = guards[1].sealed  # type: ignore[method-assign]
    with open_exchange(identities, ["silo-0"]) as exchange:
        Courier(identities.courier("silo-0", guards[0].address), exchange.address)
        with pytest.raises(VerificationFailed):
            assembly(exchange, ["silo-0"], tmp_path).ask(COUNTS)


def test_a_second_courier_takes_over_and_the_first_leaves(identities: Identities, guards: list[FakeGuard]) -> None:
    with open_exchange(identities, ["silo-0"]) as exchange:
        config = identities.courier("silo-0", guards[0].address)
        first = Courier(config, exchange.address)
        wait_for(lambda: exchange.present() == ["silo-0"])
        second = Courier(config, exchange.address)
        first.thread.join(10)
        assert "taken over" in str(first.outcome)
        assert exchange.present() == ["silo-0"]
        assert second.outcome is None


def test_a_cut_stream_is_redialled_and_asked_again(
    identities: Identities, guards: list[FakeGuard], tmp_path: Path
) -> None:
    guard = guards[0]
    guard.seconds = 1.0
    with open_exchange(identities, ["silo-0"]) as exchange, CuttableRelay(exchange.address) as relay:
        Courier(identities.courier("silo-0", guard.address), relay.address)
        cut = threading.Thread(target=lambda: (guard.answering.wait(10), relay.cut()))
        cut.start()
        summed = assembly(exchange, ["silo-0"], tmp_path, grace=15.0).ask(COUNTS)
        cut.join()
        assert summed.silos == 1
        assert guard.asked == 2
        np.testing.assert_allclose(summed.blocks["counts"], np.full(3, COUNTS.grid()))


def test_a_courier_without_exchange_gives_up_when_its_patience_ends(
    identities: Identities, guards: list[FakeGuard]
) -> None:
    courier = Courier(identities.courier("silo-0", guards[0].address, patience=1.0), "127.0.0.1:9")
    courier.thread.join(20)
    assert isinstance(courier.outcome, SiloUnavailable)


def test_a_dead_guard_is_reported_in_our_words(identities: Identities, guards: list[FakeGuard], tmp_path: Path) -> None:
    guards[0].sealed = None  # type: ignore[assignment]
    with open_exchange(identities, ["silo-0"]) as exchange:
        Courier(identities.courier("silo-0", guards[0].address), exchange.address)
        with pytest.raises(SiloUnavailable) as caught:
            assembly(exchange, ["silo-0"], tmp_path).ask(COUNTS)
        assert "NoneType" not in str(caught.value)


def test_an_oversized_header_is_refused_before_anything_is_stored(
    identities: Identities, guards: list[FakeGuard]
) -> None:
    with open_exchange(identities, ["silo-0"]) as exchange:
        config = identities.courier("silo-0", "unix:nowhere")
        credentials = channels.client_credentials(config.ca, config.certificate, config.key)
        header = guard_pb2.AnswerPart(header=guard_pb2.ReleaseHeader(size=1 << 50))
        with grpc.insecure_channel(guards[0].address) as channel:
            description = GuardStub(channel).Describe(guard_pb2.DescribeRequest(), timeout=10)
        hello = exchange_pb2.Hello(run_id=RUN, description=description)
        with grpc.secure_channel(exchange.address, credentials) as channel:
            done = threading.Event()

            def talk() -> Iterator[exchange_pb2.FromSilo]:
                yield exchange_pb2.FromSilo(hello=hello)
                yield exchange_pb2.FromSilo(ticket=1, answer=header)
                done.wait(10)

            question: dict[str, object] = {}
            asking = threading.Thread(
                target=lambda: question.update(exchange.ask(encode(COUNTS), ["silo-0"], 3, _ignore, 5.0, 5.0))
            )
            asking.start()
            stream = ExchangeStub(channel).Attend(talk())
            asking.join(10)
            done.set()
            stream.cancel()
        assert isinstance(question["silo-0"], VerificationFailed)
        assert "larger than its query allows" in str(question["silo-0"])


def run_with(identities: Identities, guard: FakeGuard, folder: Path) -> Courier:
    """A run of one silo; raises what the assembly raises."""
    with open_exchange(identities, [guard.silo]) as exchange:
        courier = Courier(identities.courier(guard.silo, guard.address), exchange.address)
        try:
            assembly(exchange, [guard.silo], folder).ask(COUNTS)
        finally:
            wait_for(lambda: exchange.left_out() or exchange.present())
    courier.thread.join(10)
    return courier


def test_a_guard_is_shown_what_the_server_saw_of_its_ledger(
    identities: Identities, guards: list[FakeGuard], tmp_path: Path
) -> None:
    run_with(identities, guards[0], tmp_path)
    assert guards[0].witnessed == []
    seen = guards[0].head()
    run_with(identities, guards[0], tmp_path)
    assert guards[0].witnessed == [seen]


def test_a_ledger_older_than_the_server_saw_is_left_out(
    identities: Identities, guards: list[FakeGuard], tmp_path: Path
) -> None:
    guards[0].releases = 7
    run_with(identities, guards[0], tmp_path)
    guards[0].releases = 6
    with pytest.raises(LedgerRolledBack, match="6 entries, we have seen 7"):
        run_with(identities, guards[0], tmp_path)
    assert '"kind": "rolled_back", "silo": "silo-0"' in (tmp_path / "journal.jsonl").read_text()


def test_a_guard_that_finds_itself_rolled_back_is_left_out(
    identities: Identities, guards: list[FakeGuard], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_with(identities, guards[0], tmp_path)

    def refuse(self: FakeGuard, request: guard_pb2.Head, context: grpc.ServicerContext) -> guard_pb2.Head:
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "LedgerRolledBack: entry 1 is missing: an older copy")

    monkeypatch.setattr(FakeGuard, "Witness", refuse)
    with FakeGuard("silo-0", tmp_path) as guard:
        guard._key = guards[0]._key
        with pytest.raises(LedgerRolledBack, match="silo-0: entry 1 is missing"):
            run_with(identities, guard, tmp_path)


def test_a_guard_that_dies_when_shown_the_head_is_shown_it_again(
    identities: Identities, guards: list[FakeGuard], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_with(identities, guards[0], tmp_path)
    original, calls = FakeGuard.Witness, []

    def unavailable_once(self: FakeGuard, request: guard_pb2.Head, context: grpc.ServicerContext) -> guard_pb2.Head:
        calls.append(request)
        if len(calls) == 1:
            context.abort(grpc.StatusCode.UNAVAILABLE, "restarting")
        return original(self, request, context)

    monkeypatch.setattr(FakeGuard, "Witness", unavailable_once)
    with FakeGuard("silo-0", tmp_path) as guard:
        guard._key, guard.releases = guards[0]._key, 1
        run_with(identities, guard, tmp_path)
    assert len(calls) == 2


def test_a_silo_with_another_key_is_left_out(identities: Identities, guards: list[FakeGuard], tmp_path: Path) -> None:
    run_with(identities, guards[0], tmp_path)
    with FakeGuard("silo-0", tmp_path) as stranger, pytest.raises(PeerRejected, match="another key than before"):
        run_with(identities, stranger, tmp_path)
    assert '"kind": "left_out", "silo": "silo-0"' in (tmp_path / "journal.jsonl").read_text()


def test_a_hello_with_another_ledgers_head_is_left_out(
    identities: Identities, guards: list[FakeGuard], tmp_path: Path
) -> None:
    guards[0].head = guards[1].head  # type: ignore[method-assign]
    with pytest.raises(VerificationFailed, match="another ledger"):
        run_with(identities, guards[0], tmp_path)


def test_a_query_waits_for_people(
    identities: Identities, guards: list[FakeGuard], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assembly_module, "_CONSENT_POLL_SECONDS", 0.2)
    guards[0].refusal = guard_pb2.Refusal(error="ConsentPending", message="waits")
    with open_exchange(identities, names(guards)) as exchange:
        for guard in guards:
            Courier(identities.courier(guard.silo, guard.address), exchange.address)

        def approve() -> None:
            wait_for(lambda: guards[0].asked >= 3)
            guards[0].refusal = None

        deciding = threading.Thread(target=approve)
        deciding.start()
        summed = assembly(exchange, names(guards), tmp_path).ask(COUNTS)
        deciding.join()
    assert summed.silos == 3
    assert [guard.asked for guard in guards[1:]] == [1, 1]
    journal = (tmp_path / "assembly.jsonl").read_text()
    assert journal.count(f'"kind": "waiting_for_consent", "silo": "silo-0", "digest": "{digest(COUNTS).hex()}"') == 1


def test_a_run_does_not_wait_for_people_for_ever(
    identities: Identities, guards: list[FakeGuard], tmp_path: Path
) -> None:
    guards[0].refusal = guard_pb2.Refusal(error="ConsentPending", message="waits")
    with open_exchange(identities, ["silo-0"]) as exchange:
        Courier(identities.courier("silo-0", guards[0].address), exchange.address)
        with pytest.raises(ConsentPending, match="silo-0: waits"):
            assembly(exchange, ["silo-0"], tmp_path, consent=0.0).ask(COUNTS)


def _ignore(silo: str, sealed: bytes) -> None:
    raise AssertionError("nothing was released")
