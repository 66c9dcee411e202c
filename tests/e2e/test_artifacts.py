"""Public files on their way from a recipe to a mechanism: real exchange, courier and guard, real mutual TLS."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from support.artifacts import ARTIFACT, CONTENT, ReadingMechanism, naming
from support.fake_federation import RUN, Courier, Identities, open_exchange
from support.guards import counts_bytes, counts_query, open_ledger, toy_guard
from support.relay import CuttableRelay, wait_for

from silosynth.client.guard.guard import Guard
from silosynth.client.guard.service import GuardServer
from silosynth.common import channels
from silosynth.common.errors import PolicyDenied, SiloUnavailable, VerificationFailed
from silosynth.protos.v1 import exchange_pb2, guard_pb2
from silosynth.protos.v1.exchange_pb2_grpc import ExchangeStub
from silosynth.protos.v1.guard_pb2_grpc import GuardStub
from silosynth.server.assembly import Assembly
from silosynth.server.config import FederationSettings
from silosynth.server.exchange import Exchange
from silosynth.server.journal import Journal
from silosynth.server.recipes.base import Ask

SILO = "toy"


@dataclass
class Silo:
    """A guard that is served, and a courier for it."""

    folder: Path
    identities: Identities
    guard: Guard
    server: GuardServer
    reading: ReadingMechanism = field(default_factory=ReadingMechanism)

    def attend(self, exchange: str) -> None:
        Courier(self.identities.courier(SILO, self.server.address), exchange)

    def shelf(self) -> list[str]:
        folder = self.folder / "artifacts"
        return sorted(file.name for file in folder.iterdir()) if folder.exists() else []

    def fetches(self) -> int:
        entries = map(json.loads, (self.folder / "journal.jsonl").read_text().splitlines())
        return sum(entry["kind"] == "fetching" for entry in entries)


@contextlib.contextmanager
def open_silo(folder: Path, **settings: Any) -> Iterator[Silo]:
    reading = ReadingMechanism()
    with contextlib.closing(open_ledger(folder)) as ledger:
        guard = toy_guard(ledger, {"class_counts": reading}, **settings)
        server = GuardServer(guard, "127.0.0.1:0")
        try:
            yield Silo(folder, Identities(folder), guard, server, reading)
        finally:
            server.stop()


def assembly(exchange: Exchange, folder: Path) -> Assembly:
    return Assembly(exchange, FederationSettings(silos=(SILO,), grace_seconds=15.0), Journal(folder / "assembly.jsonl"))


def test_an_artifact_is_fetched_once_for_two_queries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    naming(monkeypatch)
    with open_silo(tmp_path) as silo, open_exchange(silo.identities, [SILO]) as exchange:
        silo.attend(exchange.address)
        asked = assembly(exchange, tmp_path)
        asked.ask(Ask(counts_query(8.0), {ARTIFACT: CONTENT}))
        asked.ask(counts_query(9.0))
        assert silo.reading.read == [CONTENT, CONTENT]
        assert silo.fetches() == 1
        assert silo.shelf() == [ARTIFACT]


def test_a_backbone_that_is_not_allowed_is_not_even_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    naming(monkeypatch, backbones=(ARTIFACT,))
    with open_silo(tmp_path) as silo, open_exchange(silo.identities, [SILO]) as exchange:
        silo.attend(exchange.address)
        with pytest.raises(PolicyDenied, match=f"toy: this silo does not allow the backbone {ARTIFACT}"):
            assembly(exchange, tmp_path).ask(Ask(counts_query(8.0), {ARTIFACT: CONTENT}))
        assert silo.fetches() == 0
        assert silo.shelf() == []
        assert silo.guard.budget().releases == 0


def test_a_connection_cut_midway_is_redialled_and_the_artifact_fetched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    naming(monkeypatch)
    with (
        open_silo(tmp_path) as silo,
        open_exchange(silo.identities, [SILO]) as exchange,
        CuttableRelay(exchange.address, most_bytes=len(CONTENT) / 2) as relay,
    ):
        deposit, cuts = silo.guard.deposit, []

        def cut_the_first_time(artifact: str, chunks: Iterable[bytes]) -> None:
            deposit(artifact, cutting(chunks) if not cuts else chunks)

        def cutting(chunks: Iterable[bytes]) -> Iterator[bytes]:
            for chunk in chunks:
                yield chunk
                if not cuts:
                    cuts.append(len(chunk))
                    relay.cut()

        silo.guard.deposit = cut_the_first_time  # type: ignore[method-assign]
        silo.attend(relay.address)
        summed = assembly(exchange, tmp_path).ask(Ask(counts_query(8.0), {ARTIFACT: CONTENT}))
        assert summed.silos == 1
        assert len(cuts) == 1
        assert silo.fetches() == 2
        assert silo.shelf() == [ARTIFACT]
        assert silo.guard.budget().releases == 1


def test_an_artifact_the_server_does_not_have_is_a_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    naming(monkeypatch)
    with open_silo(tmp_path) as silo, open_exchange(silo.identities, [SILO]) as exchange:
        silo.attend(exchange.address)
        with pytest.raises(SiloUnavailable, match=f"could not fetch the artifact {ARTIFACT}"):
            assembly(exchange, tmp_path).ask(counts_query(8.0))
        assert silo.guard.budget().releases == 0


@pytest.mark.parametrize("content", [CONTENT[:-1], CONTENT + b"?", b""])
def test_a_server_that_sends_something_else_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    naming(monkeypatch)
    with open_silo(tmp_path) as silo, open_exchange(silo.identities, [SILO]) as exchange:
        exchange.offer({ARTIFACT: content})
        silo.attend(exchange.address)
        with pytest.raises(VerificationFailed, match="incomplete or something else"):
            assembly(exchange, tmp_path).ask(counts_query(8.0))
        assert silo.shelf() == []
        assert silo.guard.budget().releases == 0


def test_a_guard_that_fails_while_it_is_given_an_artifact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    naming(monkeypatch)
    with open_silo(tmp_path) as silo, open_exchange(silo.identities, [SILO]) as exchange:

        def fails(artifact: str, chunks: Iterable[bytes]) -> None:
            raise RuntimeError("a secret")

        silo.guard.deposit = fails  # type: ignore[method-assign]
        silo.attend(exchange.address)
        with pytest.raises(SiloUnavailable, match="guard stopped answering"):
            assembly(exchange, tmp_path).ask(Ask(counts_query(8.0), {ARTIFACT: CONTENT}))


def fetch(identities: Identities, silo: str, exchange: str, run_id: str = RUN, artifact: str = ARTIFACT) -> bytes:
    config = identities.courier(silo, "unix:nowhere")
    credentials = channels.client_credentials(config.ca, config.certificate, config.key)
    with grpc.secure_channel(exchange, credentials, options=channels.OPTIONS) as channel:
        request = exchange_pb2.ArtifactRequest(run_id=run_id, digest=artifact)
        return b"".join(part.chunk for part in ExchangeStub(channel).Fetch(request, timeout=10))


def refused(identities: Identities, silo: str, exchange: str, **request: str) -> grpc.StatusCode:
    with pytest.raises(grpc.RpcError) as caught:
        fetch(identities, silo, exchange, **request)
    code: grpc.StatusCode = caught.value.code()
    return code


def test_only_silos_of_the_run_get_only_its_artifacts(tmp_path: Path) -> None:
    identities = Identities(tmp_path)
    with open_exchange(identities, [SILO]) as exchange:
        exchange.offer({ARTIFACT: CONTENT})
        assert fetch(identities, SILO, exchange.address) == CONTENT
        other = hashlib.sha256(b"of another run").hexdigest()
        assert refused(identities, SILO, exchange.address, run_id="run-2") is grpc.StatusCode.NOT_FOUND
        assert refused(identities, SILO, exchange.address, artifact=other) is grpc.StatusCode.NOT_FOUND
        assert refused(identities, "stranger", exchange.address) is grpc.StatusCode.PERMISSION_DENIED
        for file in ("crt", "key"):  # the next ones have the same name and are of the same authority
            (tmp_path / f"{SILO}.{file}").unlink()
        assert refused(identities, SILO, exchange.address) is grpc.StatusCode.PERMISSION_DENIED
        with grpc.insecure_channel(exchange.address) as channel, pytest.raises(grpc.RpcError):
            list(ExchangeStub(channel).Fetch(exchange_pb2.ArtifactRequest(run_id=RUN, digest=ARTIFACT), timeout=3))


def deposit(silo: Silo, parts: Iterable[guard_pb2.ArtifactPart]) -> str:
    """What the guard says to parts from a courier that obeys no rules."""
    with grpc.insecure_channel(silo.server.address) as channel:
        try:
            GuardStub(channel).Deposit(iter(parts), timeout=10)
        except grpc.RpcError as error:
            return str(error.details())
    return "deposited"


def test_a_hostile_courier_cannot_fill_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    naming(monkeypatch)
    name, chunk = guard_pb2.ArtifactPart(digest=ARTIFACT), guard_pb2.ArtifactPart(chunk=CONTENT[: 1 << 20])
    with open_silo(tmp_path) as silo:
        assert deposit(silo, [name, chunk]).startswith("PolicyDenied")  # nobody waits for it yet
        silo.guard.lacking(counts_bytes(8.0))
        for parts in ([], [chunk], [chunk, name], [guard_pb2.ArtifactPart()]):
            assert deposit(silo, parts).startswith("PolicyDenied")
        for parts in ([name], [name, chunk], [name, name, chunk]):
            assert deposit(silo, parts).startswith("VerificationFailed")
        assert silo.shelf() == []


def test_a_courier_that_vanishes_midway_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    naming(monkeypatch)
    with open_silo(tmp_path) as silo, grpc.insecure_channel(silo.server.address) as channel:
        silo.guard.lacking(counts_bytes(8.0))

        def parts() -> Iterator[guard_pb2.ArtifactPart]:
            yield guard_pb2.ArtifactPart(digest=ARTIFACT)
            yield guard_pb2.ArtifactPart(chunk=CONTENT[: 1 << 20])
            wait_for(lambda: len(silo.shelf()) == 1)  # unfinished, under a name of its own
            assert silo.shelf() != [ARTIFACT]
            call.cancel()

        call = GuardStub(channel).Deposit.future(parts(), timeout=30)
        with pytest.raises(grpc.FutureCancelledError):
            call.result()
        wait_for(lambda: silo.shelf() == [])
