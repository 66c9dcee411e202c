"""Who must not get in, does not: certificates, names, dates, plaintext; at our exchange, at our courier, at Flower.

In the handshake means that no handler of ours ran; `Exchange.Attend` is spied on to prove it. A silo with a valid
certificate that is not invited passes the handshake; it is refused as the handler's first act, before it is heard.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from support.certificates import dated
from support.fake_federation import RUN, Identities, open_exchange

from silosynth.common import channels
from silosynth.deploy.addresses import LOOPBACK, free_port
from silosynth.deploy.flower import QUIET, supernode_command
from silosynth.deploy.kits import FederationFolder, Place
from silosynth.deploy.processes import Processes
from silosynth.deploy.provision import Authority, Identity, write_identity, write_node_key
from silosynth.deploy.server_folder import ServerFolder
from silosynth.protos.v1 import exchange_pb2, guard_pb2
from silosynth.protos.v1.exchange_pb2_grpc import ExchangeStub
from silosynth.server.exchange import Exchange

SILO = "silo-0"
HELLO = exchange_pb2.Hello(run_id=RUN, description=guard_pb2.Description(silo=SILO))
DAY = timedelta(days=1)
Credentials = Callable[[Identities], grpc.ChannelCredentials]


class Spy:
    """Counts how often the exchange's handler ran, and how many messages it heard."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = self.heard = 0
        self.welcomed = threading.Event()
        original = Exchange.Attend

        def attend(
            exchange: Exchange, requests: Iterator[exchange_pb2.FromSilo], context: grpc.ServicerContext
        ) -> Iterator[exchange_pb2.ToSilo]:
            self.calls += 1
            return original(exchange, self._listening(requests), context)

        monkeypatch.setattr(Exchange, "Attend", attend)

    def _listening(self, requests: Iterator[exchange_pb2.FromSilo]) -> Iterator[exchange_pb2.FromSilo]:
        for request in requests:
            self.heard += 1
            self.welcomed.set()
            yield request


@pytest.fixture
def identities(tmp_path: Path) -> Identities:
    return Identities(tmp_path)


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> Spy:
    return Spy(monkeypatch)


def credentials(identities: Identities, identity: Identity | None) -> grpc.ChannelCredentials:
    if identity is None:
        return grpc.ssl_channel_credentials(identities.ca.read_bytes())
    certificate, key = identity
    return grpc.ssl_channel_credentials(
        identities.ca.read_bytes(),
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        certificate.public_bytes(Encoding.PEM),
    )


def silo_for_days(identities: Identities, begins: timedelta, ends: timedelta) -> Identity:
    now, identity = datetime.now(UTC), identities.authority.issue(SILO, [], server=False)
    return dated(identities.authority, identity, now + begins, now + ends)


def refusal(channel: grpc.Channel) -> grpc.StatusCode:
    with channel, pytest.raises(grpc.RpcError) as caught:
        list(ExchangeStub(channel).Attend(iter([exchange_pb2.FromSilo(hello=HELLO)]), timeout=20))
    code: grpc.StatusCode = caught.value.code()
    return code


def test_the_invited_silo_is_heard(identities: Identities, spy: Spy) -> None:
    """The control: what the others lack is only what each test takes away."""
    config = identities.courier(SILO, "unix:nowhere")
    mine = channels.client_credentials(config.ca, config.certificate, config.key)
    with open_exchange(identities, [SILO]) as exchange, grpc.secure_channel(exchange.address, mine) as channel:
        stream = ExchangeStub(channel).Attend(iter([exchange_pb2.FromSilo(hello=HELLO)]))
        assert spy.welcomed.wait(20)
        stream.cancel()
    assert (spy.calls, spy.heard) == (1, 1)


@pytest.mark.parametrize(
    "identity",
    [
        pytest.param(lambda mine: None, id="no certificate"),
        pytest.param(lambda mine: Authority.create("other").issue(SILO, [], server=False), id="another authority"),
        pytest.param(
            lambda mine: Authority.create("test federation").issue(SILO, [], server=False),
            id="another authority of the same name",
        ),
        pytest.param(lambda mine: silo_for_days(mine, -2 * DAY, -DAY), id="expired"),
        pytest.param(lambda mine: silo_for_days(mine, DAY, 2 * DAY), id="not yet valid"),
        pytest.param(lambda mine: mine.authority.issue(SILO, [], server=True), id="a server's certificate"),
    ],
)
def test_refused_in_the_handshake(
    identities: Identities, spy: Spy, identity: Callable[[Identities], Identity | None]
) -> None:
    with open_exchange(identities, [SILO]) as exchange:
        channel = grpc.secure_channel(exchange.address, credentials(identities, identity(identities)))
        assert refusal(channel) is grpc.StatusCode.UNAVAILABLE
        assert exchange.present() == []
    assert spy.calls == 0


def test_plaintext_is_refused(identities: Identities, spy: Spy) -> None:
    with open_exchange(identities, [SILO]) as exchange:
        assert refusal(grpc.insecure_channel(exchange.address)) is grpc.StatusCode.UNAVAILABLE
    assert spy.calls == 0


@pytest.mark.parametrize(
    "name",
    [pytest.param("silo-1", id="not invited"), pytest.param(SILO, id="invited name, certificate not registered")],
)
def test_refused_before_it_is_heard(identities: Identities, spy: Spy, name: str) -> None:
    """A valid certificate of our own authority. The second is that of a silo that was removed and came anew."""
    stranger = identities.authority.issue(name, [], server=False)
    with open_exchange(identities, [SILO]) as exchange:
        channel = grpc.secure_channel(exchange.address, credentials(identities, stranger))
        assert refusal(channel) is grpc.StatusCode.PERMISSION_DENIED
        assert exchange.present() == []
    assert (spy.calls, spy.heard) == (1, 0)


@pytest.mark.parametrize(
    "server",
    [
        pytest.param(lambda mine: mine.authority.issue("server", ["other.example"], server=True), id="wrong host name"),
        pytest.param(lambda mine: Authority.create("other").issue("server", [LOOPBACK], server=True), id="wrong CA"),
        pytest.param(lambda mine: mine.authority.issue("silo-1", [LOOPBACK], server=False), id="a silo as server"),
    ],
)
def test_the_courier_refuses_a_false_server(
    identities: Identities, spy: Spy, server: Callable[[Identities], Identity]
) -> None:
    for stem in ("server.crt", "server.key"):
        (identities.folder / stem).unlink()
    write_identity(identities.folder, "server", *server(identities))
    config = identities.courier(SILO, "unix:nowhere")
    mine = channels.client_credentials(config.ca, config.certificate, config.key)
    with open_exchange(identities, [SILO]) as exchange:
        assert refusal(grpc.secure_channel(exchange.address, mine)) is grpc.StatusCode.UNAVAILABLE
    assert spy.calls == 0


def unknown_key(courier: Path, command: list[str]) -> list[str]:
    write_node_key(courier, "stranger")
    return replaced(command, "--auth-supernode-private-key", courier / "stranger.key")


def wrong_authority(courier: Path, command: list[str]) -> list[str]:
    other = Authority.create("other")
    write_identity(courier, "other", other.certificate, other.key)
    return replaced(command, "--root-certificates", courier / "other.crt")


def no_key(courier: Path, command: list[str]) -> list[str]:
    at = command.index("--auth-supernode-private-key")
    return command[:at] + command[at + 2 :]


def replaced(command: list[str], option: str, value: Path) -> list[str]:
    at = command.index(option)
    return [*command[: at + 1], str(value), *command[at + 2 :]]


def test_flower_turns_supernodes_away(tmp_path: Path) -> None:
    """One SuperLink, three SuperNodes that each lack one thing: all give up."""
    ports = {name: free_port() for name in ("control_port", "catalog_port", "consumer_port")}
    place = Place((LOOPBACK,), free_port(), exchange_port=0, **ports)
    federation = FederationFolder.create(tmp_path / "federation", place)
    courier = federation.add_silo(SILO).courier
    server = ServerFolder(federation.server)
    with Processes(tmp_path / "logs") as processes:
        server.start(processes)
        nodes = []
        for mistake in (unknown_key, no_key, wrong_authority):
            paths = (courier / "ca.crt", courier / "node.key", free_port(), courier / "courier.toml")
            command = mistake(courier, supernode_command(server.config().flower.fleet, *paths))
            home = str(tmp_path / mistake.__name__)
            nodes.append(processes.start(mistake.__name__, command, **QUIET, FLWR_HOME=home))
        for node in nodes:
            assert node.process.wait(60) != 0, node.last_words()  # 1, or gRPC's own abort on the way out
        assert "Activated node" not in processes.children["superlink"].log.read_text()
