"""Provisioning: what is in a federation's folders, who may open it, and that nothing is overwritten."""

from __future__ import annotations

import ipaddress
import re
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_ssh_private_key

from silosynth.client.config import load_courier, load_silo
from silosynth.common import shipped
from silosynth.common.errors import ConfigError
from silosynth.deploy.addresses import all_interfaces, split
from silosynth.deploy.kit_texts import Answers
from silosynth.deploy.kits import FederationFolder, Place
from silosynth.deploy.provision import Authority, fingerprint
from silosynth.server.config import load_server

HOSTS = ("synth.example.org", "10.0.0.5", "2001:db8::7")


@pytest.fixture
def federation() -> Iterator[FederationFolder]:
    """In a folder with a short path: the kits' sockets have narrow limits."""
    with tempfile.TemporaryDirectory(prefix="silosynth-") as folder:
        federation = FederationFolder.create(Path(folder) / "federation", Place(HOSTS))
        for silo in ("st-mary", "charite"):
            federation.add_silo(silo)
        yield federation


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_secrets_are_for_their_owner_alone(federation: FederationFolder) -> None:
    keys = sorted(path.relative_to(federation.folder) for path in federation.folder.rglob("*.key"))
    assert [str(key) for key in keys] == [
        "authority/ca.key",
        "kits/charite/courier/node.key",
        "kits/charite/courier/silo.key",
        "kits/st-mary/courier/node.key",
        "kits/st-mary/courier/silo.key",
        "server/publisher.key",
        "server/server.key",
    ]
    assert {mode(federation.folder / key) for key in keys} == {0o600}
    kit = federation.kit("st-mary")
    assert {mode(folder) for folder in (federation.authority, federation.server, kit.guard, kit.courier)} == {0o700}


def test_the_server_goes_by_every_name_it_was_given(federation: FederationFolder) -> None:
    names = certificate(federation.server / "server.crt").extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    assert names.value.get_values_for_type(x509.DNSName) == ["synth.example.org", "localhost"]
    addresses = names.value.get_values_for_type(x509.IPAddress)
    assert addresses == [ipaddress.ip_address(address) for address in ("10.0.0.5", "2001:db8::7", "127.0.0.1")]


def test_a_kit_knows_its_server_and_its_silo(federation: FederationFolder) -> None:
    kit = federation.kit("st-mary")
    courier = load_courier(kit.courier_toml)
    assert (courier.silo, courier.server.fleet) == ("st-mary", "synth.example.org:9092")
    assert courier.server.exchange == "synth.example.org:9093"
    mine = certificate(courier.certificate)
    mine.verify_directly_issued_by(certificate(courier.ca))
    assert mine.subject.rfc4514_string() == "CN=st-mary"
    assert load_ssh_private_key(courier.node_key.read_bytes(), None)
    readme = (kit.folder / "README.md").read_text()
    for word in ("st-mary", "synth.example.org:9092", "synth.example.org:9093", "silo doctor", "ledger.db"):
        assert word in readme


def test_the_server_lists_who_may_take_part(federation: FederationFolder) -> None:
    server = load_server(federation.server / "server.toml")
    assert (server.flower.fleet, server.flower.control) == ("0.0.0.0:9092", "127.0.0.1:9094")
    assert (server.exchange.host, server.exchange.port) == ("0.0.0.0", 9093)
    assert server.exchange.public_host == "synth.example.org"
    for silo in server.silos:
        courier = federation.kit(silo.name).courier
        assert silo.certificate == fingerprint(certificate(courier / "silo.crt"))
        assert silo.node_key.read_bytes() == (courier / "node.pub").read_bytes()
    with pytest.raises(ConfigError, match=r"mayo not registered.*st-mary, charite"):
        server.certificates(("st-mary", "mayo"))


def test_a_kit_as_delivered_cannot_start_and_filled_in_denies(federation: FederationFolder) -> None:
    toml = federation.kit("st-mary").silo_toml
    with pytest.raises(ConfigError, match=r"path is needed.*budget\.epsilon: Field required"):
        load_silo(toml)
    text = toml.read_text().replace("# path =", "path =").replace("# classes", "classes")
    toml.write_text(text.replace("# epsilon =", "epsilon =").replace("# delta", "delta"))
    config = load_silo(toml)
    assert (config.silo.name, config.policy.consent, config.policy.mechanisms) == ("st-mary", "deny", ())


def test_every_commented_line_of_the_template_is_valid_when_uncommented(federation: FederationFolder) -> None:
    toml = federation.kit("st-mary").silo_toml
    toml.write_text(re.sub(r"^# (\w+ = )", r"\1", toml.read_text(), flags=re.MULTILINE))
    config = load_silo(toml)
    assert config.policy.max_epsilon_per_query == 2.0
    assert "class_counts" in config.policy.mechanisms


def test_a_kit_allows_the_backbones_that_are_shipped(
    federation: FederationFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipped, "WEIGHTS", tmp_path)
    for name in ("colour", "grey"):
        (tmp_path / f"{name}.safetensors").touch()
    answers = Answers({"source": "digits"}, {"epsilon": 3.0, "delta": 1e-6})
    assert load_silo(federation.add_silo("mayo", answers=answers).silo_toml).policy.backbones == ("colour", "grey")


def test_answers_take_the_place_of_the_examples(federation: FederationFolder) -> None:
    answers = Answers({"source": "digits"}, {"epsilon": 3.0, "delta": 1e-6}, {"consent": "auto", "mechanisms": []})
    config = load_silo(federation.add_silo("mayo", "unix:/run/guard.sock", answers).silo_toml)
    assert (config.budget.epsilon, config.policy.consent) == (3.0, "auto")
    assert config.guard.address == "unix:/run/guard.sock"


@pytest.mark.parametrize("name", ["", "../mayo", "a/b", "-x", "a b", "x" * 64, 'a"b'])
def test_names_that_could_be_mistaken_are_refused(federation: FederationFolder, name: str) -> None:
    with pytest.raises(ConfigError, match="cannot name a silo"):
        federation.add_silo(name)


def test_nothing_is_overwritten(federation: FederationFolder) -> None:
    with pytest.raises(ConfigError, match="not empty"):
        FederationFolder.create(federation.folder, Place(HOSTS))
    with pytest.raises(ConfigError, match="registered already"):
        federation.add_silo("st-mary")
    federation.remove_silo("st-mary")
    with pytest.raises(ConfigError, match="not overwritten"):
        federation.add_silo("st-mary")


def test_adding_needs_the_authority_and_keeps_the_rest_of_server_toml(federation: FederationFolder) -> None:
    toml = federation.server / "server.toml"
    toml.write_text(toml.read_text().replace("# The server of", "# Ours, in the basement. The server of"))
    kit = FederationFolder.open(federation.folder).add_silo("mayo")
    assert toml.read_text().startswith("# Ours, in the basement.")
    assert federation.silos() == ["st-mary", "charite", "mayo"]
    certificate(kit.courier / "silo.crt").verify_directly_issued_by(certificate(federation.server / "ca.crt"))
    (federation.authority / "ca.key").unlink()
    with pytest.raises(ConfigError, match="bring the authority's folder back"):
        federation.add_silo("mercy")


def test_a_mixed_up_authority_is_refused(federation: FederationFolder, tmp_path: Path) -> None:
    other = FederationFolder.create(tmp_path / "other", Place(HOSTS))
    (federation.authority / "ca.crt").write_bytes((other.authority / "ca.crt").read_bytes())
    with pytest.raises(ConfigError, match=r"ca\.key is not the key of ca\.crt"):
        Authority.load(federation.authority)


def test_a_removed_silo_is_off_the_list_and_comes_back_as_another(federation: FederationFolder) -> None:
    before = {silo.name: silo.certificate for silo in load_server(federation.server / "server.toml").silos}
    (federation.authority / "ca.key").rename(federation.folder / "offline")
    federation.remove_silo("charite")
    assert federation.silos() == ["st-mary"]
    with pytest.raises(ConfigError, match="charite is not registered; registered are st-mary"):
        federation.remove_silo("charite")
    (federation.folder / "offline").rename(federation.authority / "ca.key")
    federation.kit("charite").folder.rename(federation.folder / "old-kit")
    federation.add_silo("charite")
    after = {silo.name: silo.certificate for silo in load_server(federation.server / "server.toml").silos}
    assert after["st-mary"] == before["st-mary"]
    assert after["charite"] != before["charite"]


def test_a_folder_without_federation(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no federation"):
        FederationFolder.open(tmp_path)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("host:9092", ("host", 9092)),
        ("host", ("host", 7)),
        ("[::1]:9092", ("::1", 9092)),
        ("::1", ("::1", 7)),
        ("10.0.0.5", ("10.0.0.5", 7)),
    ],
)
def test_addresses_are_taken_apart(address: str, expected: tuple[str, int]) -> None:
    assert split(address, default_port=7) == expected


@pytest.mark.parametrize("address", ["", ":1", "host:", "host:x", "host:65536", "host"])
def test_addresses_that_are_none(address: str) -> None:
    with pytest.raises(ConfigError, match="HOST:PORT"):
        split(address)


@pytest.mark.parametrize(
    ("host", "listen"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("localhost", "127.0.0.1"),
        ("::1", "[::1]"),
        ("10.1.2.3", "0.0.0.0"),
        ("fd00::1", "[::]"),
    ],
)
def test_a_server_on_loopback_listens_there_only(host: str, listen: str) -> None:
    assert all_interfaces(host) == listen


def test_one_server_by_many_names() -> None:
    place = Place.of(["a.example:7000", "10.0.0.5"], exchange_port=7001, control_port=7002)
    assert place == Place(("a.example", "10.0.0.5"), 7000, 7001, 7002)
    assert Place.of(["a.example"]).fleet_port == 9092
    with pytest.raises(ConfigError, match="one port, not on 1, 2"):
        Place.of(["a:1", "b:2"])
