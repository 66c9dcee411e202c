"""`silosynth silo doctor`: a healthy kit has no findings, and every mistake has one that names the cure."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import socket
import ssl
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from support.certificates import dated
from support.fake_guard import FakeGuard
from support.guards import counts_bytes

from silosynth.client.config import load_courier
from silosynth.client.guard.identity import load_or_create
from silosynth.client.guard.ledger import Ledger
from silosynth.common.events import Event
from silosynth.common.queries import Query, decode
from silosynth.deploy import doctor_ledger, doctor_machine, sandbox
from silosynth.deploy.addresses import LOOPBACK, free_port
from silosynth.deploy.doctor import as_document, as_table, examine, healthy
from silosynth.deploy.findings import Finding, State
from silosynth.deploy.kit_texts import Answers
from silosynth.deploy.kits import FederationFolder, Kit, Place
from silosynth.deploy.provision import Authority, write_identity

SILO = "st-mary"
DAY = timedelta(days=1)


@pytest.fixture
def federation() -> Iterator[FederationFolder]:
    """In a folder with a short path: a socket's has narrow limits."""
    with tempfile.TemporaryDirectory(prefix="silosynth-") as folder:
        place = Place((LOOPBACK,), free_port(), exchange_port=free_port())
        yield FederationFolder.create(Path(folder) / "f", place)


@pytest.fixture
def kit(federation: FederationFolder) -> Kit:
    policy = {"consent": "auto", "mechanisms": sorted(Query.kinds)}
    answers = Answers({"source": "digits", "split": "test"}, {"epsilon": 4.0, "delta": 1e-6}, policy)
    return federation.add_silo(SILO, answers=answers)


def found(kit: Kit, check: str) -> Finding:
    """The worst finding of a check."""
    order = [State.PROBLEM, State.WARNING, State.OK]
    return min((item for item in examine(kit) if item.check == check), key=lambda item: order.index(item.state))


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def rewrite_identity(kit: Kit, stem: str, authority: Authority, name: str = SILO, *, server: bool = False) -> None:
    (kit.courier / f"{stem}.key").unlink()
    write_identity(kit.courier, stem, *authority.issue(name, [], server=server))


def test_a_healthy_kit_has_no_problem(kit: Kit) -> None:
    """The server is not up yet: that is a warning, and the only one."""
    findings = list(examine(kit))
    assert healthy(findings), findings
    assert [item.check for item in findings if item.state is not State.OK] == ["fleet port"]
    assert not (kit.guard / "ledger.db").exists()
    assert not (kit.guard / "receipts.key").exists()
    document = as_document(kit, findings)
    assert document["ok"] is True
    assert len(document["findings"]) == as_table(findings).row_count == len(findings)


def test_a_kit_as_delivered_says_what_to_fill_in(federation: FederationFolder) -> None:
    finding = found(federation.add_silo("blank"), "silo.toml")
    assert finding.state is State.PROBLEM
    assert "[data]" in finding.fix
    assert "[budget]" in finding.fix


def test_a_folder_that_is_no_kit(tmp_path: Path) -> None:
    finding = found(Kit(tmp_path), "courier.toml")
    assert "no such file" in finding.says
    assert "--kit" in finding.fix


def misspelt_key(kit: Kit, _: FederationFolder) -> None:
    edit(kit.silo_toml, "consent =", "consnet =")


def broken_toml(kit: Kit, _: FederationFolder) -> None:
    edit(kit.courier_toml, "[server]", "[server")


def remote_guard(kit: Kit, _: FederationFolder) -> None:
    edit(kit.silo_toml, "unix:../socket/guard.sock", "0.0.0.0:5000")


def long_socket(kit: Kit, _: FederationFolder) -> None:
    edit(kit.silo_toml, "../socket/guard.sock", "x" * 120)


def other_socket(kit: Kit, _: FederationFolder) -> None:
    edit(kit.courier_toml, "../socket/guard.sock", "../gaurd.sock")


def other_silo(kit: Kit, _: FederationFolder) -> None:
    edit(kit.silo_toml, f'name = "{SILO}"', 'name = "charite"')


def open_guard_folder(kit: Kit, _: FederationFolder) -> None:
    kit.guard.chmod(0o750)


def open_courier_folder(kit: Kit, _: FederationFolder) -> None:
    kit.courier.chmod(0o705)


def open_key(kit: Kit, _: FederationFolder) -> None:
    (kit.courier / "silo.key").chmod(0o640)


def missing_ca(kit: Kit, _: FederationFolder) -> None:
    (kit.courier / "ca.crt").unlink()


def damaged_certificate(kit: Kit, _: FederationFolder) -> None:
    (kit.courier / "silo.crt").write_text("hello")


def wrong_authority(kit: Kit, _: FederationFolder) -> None:
    rewrite_identity(kit, "silo", Authority.create("other"))


def wrong_name(kit: Kit, federation: FederationFolder) -> None:
    rewrite_identity(kit, "silo", Authority.load(federation.authority), "charite")


def server_certificate(kit: Kit, federation: FederationFolder) -> None:
    rewrite_identity(kit, "silo", Authority.load(federation.authority), server=True)


def for_days(kit: Kit, federation: FederationFolder, begins: timedelta, ends: timedelta) -> None:
    authority, now = Authority.load(federation.authority), datetime.now(UTC)
    (kit.courier / "silo.key").unlink()
    identity = dated(authority, authority.issue(SILO, [], server=False), now + begins, now + ends)
    write_identity(kit.courier, "silo", *identity)


def expired(kit: Kit, federation: FederationFolder) -> None:
    for_days(kit, federation, -2 * DAY, -DAY)


def not_yet_valid(kit: Kit, federation: FederationFolder) -> None:
    for_days(kit, federation, DAY, 2 * DAY)


def expires_soon(kit: Kit, federation: FederationFolder) -> None:
    for_days(kit, federation, -DAY, 10 * DAY)


def written_tomorrow(kit: Kit, _: FederationFolder) -> None:
    tomorrow = (datetime.now(UTC) + DAY).timestamp()
    os.utime(kit.courier / "silo.crt", (tomorrow, tomorrow))


def foreign_key(kit: Kit, federation: FederationFolder) -> None:
    shutil.copy(federation.add_silo("charite").courier / "silo.key", kit.courier)


def garbled_key(kit: Kit, _: FederationFolder) -> None:
    (kit.courier / "silo.key").write_text("hello")


def missing_node_key(kit: Kit, _: FederationFolder) -> None:
    (kit.courier / "node.key").unlink()


def pem_node_key(kit: Kit, _: FederationFolder) -> None:
    shutil.copy(kit.courier / "silo.key", kit.courier / "node.key")


def ed25519_node_key(kit: Kit, _: FederationFolder) -> None:
    key = Ed25519PrivateKey.generate()
    (kit.courier / "node.key").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))


def foreign_node_key(kit: Kit, federation: FederationFolder) -> None:
    shutil.copy(federation.add_silo("charite").courier / "node.pub", kit.courier)


def missing_data(kit: Kit, _: FederationFolder) -> None:
    edit(kit.silo_toml, 'source = "digits"\nsplit = "test"', 'path = "/nowhere/records.npz"\nclasses = 10')


def data_beside_the_courier(kit: Kit, _: FederationFolder) -> None:
    write_records(kit, kit.folder / "records.npz")


def data_for_everyone(kit: Kit, federation: FederationFolder) -> None:
    folder = federation.folder / "records"
    folder.mkdir()
    federation.folder.parent.chmod(0o755)
    write_records(kit, folder / "records.npz")
    (folder / "records.npz").chmod(0o644)


def write_records(kit: Kit, path: Path) -> None:
    np.savez(path, images=np.zeros((2, 8, 8, 1), np.uint8), labels=np.zeros(2, np.int64))
    edit(kit.silo_toml, 'source = "digits"\nsplit = "test"', f'path = "{path}"\nclasses = 10')


def deny(kit: Kit, _: FederationFolder) -> None:
    edit(kit.silo_toml, 'consent = "auto"', 'consent = "deny"')


def unknown_mechanism(kit: Kit, _: FederationFolder) -> None:
    edit(kit.silo_toml, '"class_counts"', '"klass_counts"')


def unknown_backbone(kit: Kit, _: FederationFolder) -> None:
    edit(kit.silo_toml, "[policy]", '[policy]\nbackbones = ["smal"]')


def infinite_budget(kit: Kit, _: FederationFolder) -> None:
    edit(kit.silo_toml, "epsilon = 4.0", "epsilon = inf")


def large_delta(kit: Kit, _: FederationFolder) -> None:
    edit(kit.silo_toml, "delta = 1e-06", "delta = 0.01")


def ledger_elsewhere(kit: Kit, _: FederationFolder) -> None:
    edit(kit.silo_toml, 'ledger = "ledger.db"', 'ledger = "/nowhere/ledger.db"')


def lost_ledger(kit: Kit, _: FederationFolder) -> None:
    load_or_create(kit.guard / "receipts.key")


def lost_receipts_key(kit: Kit, _: FederationFolder) -> None:
    spend(kit)
    (kit.guard / "receipts.key").unlink()


def another_receipts_key(kit: Kit, _: FederationFolder) -> None:
    lost_receipts_key(kit, _)
    load_or_create(kit.guard / "receipts.key")


def damaged_ledger(kit: Kit, _: FederationFolder) -> None:
    spend(kit)
    (kit.guard / "ledger.db").write_bytes((kit.guard / "ledger.db").read_bytes()[:-500])


def spend(kit: Kit) -> None:
    ledger = Ledger.open(kit.guard / "ledger.db", SILO, load_or_create(kit.guard / "receipts.key"))
    query = counts_bytes(5.0)
    ledger.commit("default", query, decode(query).event(), _within_budget, lambda: b"payload")
    ledger.close()


def _within_budget(spent: tuple[Event, ...]) -> None:
    pass


def another_dataset(kit: Kit, _: FederationFolder) -> None:
    spend(kit)
    edit(kit.silo_toml, '# dataset = "default"', 'dataset = "november"')


def lost_terms(kit: Kit, _: FederationFolder) -> None:
    spend(kit)


def unresolvable(kit: Kit, _: FederationFolder) -> None:
    text = kit.courier_toml.read_text().replace("127.0.0.1:", "no-such-host.invalid:")
    kit.courier_toml.write_text(text)


@pytest.mark.parametrize(
    ("mistake", "check", "state", "says", "fix"),
    [
        (misspelt_key, "silo.toml", State.PROBLEM, "policy.consnet: unknown key", "misspelt"),
        (broken_toml, "courier.toml", State.PROBLEM, "not TOML", "courier.toml"),
        (remote_guard, "silo.toml", State.PROBLEM, "loopback", "silo.toml"),
        (long_socket, "silo.toml", State.PROBLEM, "too long", "shorter path"),
        (other_socket, "socket", State.PROBLEM, "gaurd.sock", "courier.toml"),
        (other_silo, "names", State.PROBLEM, "charite", "one kit"),
        (open_guard_folder, "guard folder", State.PROBLEM, "other users", "chmod 700"),
        (open_courier_folder, "courier folder", State.PROBLEM, "other users", "chmod 700"),
        (open_key, "key", State.PROBLEM, "other users", "chmod 600"),
        (missing_ca, "ca", State.PROBLEM, "missing", "restore"),
        (damaged_certificate, "certificate", State.PROBLEM, "no certificate", "restore"),
        (wrong_authority, "certificate", State.PROBLEM, "not issued by", "restore"),
        (wrong_name, "certificate", State.PROBLEM, "is for charite", "certificate's name"),
        (server_certificate, "certificate", State.PROBLEM, "not one for a silo", "restore"),
        (expired, "certificate", State.PROBLEM, "expired", "new kit"),
        (not_yet_valid, "certificate", State.PROBLEM, "not valid before", "clock"),
        (expires_soon, "certificate", State.WARNING, "expires on", "new kit"),
        (written_tomorrow, "clock", State.WARNING, "kit was written", "NTP"),
        (foreign_key, "key", State.PROBLEM, "does not belong", "restore"),
        (garbled_key, "key", State.PROBLEM, "no unencrypted private key", "restore"),
        (missing_node_key, "node key", State.PROBLEM, "missing", "restore"),
        (pem_node_key, "node key", State.PROBLEM, "OpenSSH form", "restore"),
        (ed25519_node_key, "node key", State.PROBLEM, "P-384", "restore"),
        (foreign_node_key, "node key", State.PROBLEM, "public half", "restore"),
        (missing_data, "data", State.PROBLEM, "/nowhere/records.npz", "[data]"),
        (data_beside_the_courier, "courier kept out", State.PROBLEM, "folder of their own", "move"),
        (data_for_everyone, "data", State.WARNING, "every user", "chmod o-rwx"),
        (deny, "policy", State.WARNING, "nothing will leave", 'consent = "auto"'),
        (unknown_mechanism, "policy", State.PROBLEM, "klass_counts", "[policy]"),
        (unknown_backbone, "policy", State.PROBLEM, "policy.backbones: unknown smal", "[policy]"),
        (infinite_budget, "budget", State.WARNING, "no privacy", "finite"),
        (large_delta, "budget", State.WARNING, "0.01", "1e-6"),
        (ledger_elsewhere, "ledger", State.PROBLEM, "cannot be created", "/nowhere"),
        (lost_ledger, "ledger", State.PROBLEM, "forgotten", "newest copy"),
        (lost_receipts_key, "ledger", State.PROBLEM, "key that signed it", "backup"),
        (another_receipts_key, "ledger", State.PROBLEM, "another key signed", "refuses to start"),
        (damaged_ledger, "ledger", State.PROBLEM, "restore the newest copy", "refuses to start"),
        (another_dataset, "dataset", State.PROBLEM, "disjoint_from", "[silo]"),
        (lost_terms, "terms", State.WARNING, "silo.toml", "silo adopt"),
        (unresolvable, "server name", State.PROBLEM, "no-such-host.invalid", "DNS"),
    ],
)
def test_every_mistake_is_found_and_its_cure_named(
    federation: FederationFolder,
    kit: Kit,
    mistake: Callable[[Kit, FederationFolder], None],
    check: str,
    state: State,
    says: str,
    fix: str,
) -> None:
    mistake(kit, federation)
    finding = found(kit, check)
    assert finding.state is state, finding
    assert says in finding.says
    assert fix in finding.fix


def test_the_backbones_that_are_allowed_are_told(kit: Kit) -> None:
    assert "through no backbones" in found(kit, "policy").says
    edit(kit.silo_toml, "[policy]", f'[policy]\nbackbones = ["{"0" * 64}"]')
    assert f"through backbones {'0' * 64}" in found(kit, "policy").says


def test_nothing_of_the_records_is_shown(kit: Kit) -> None:
    """Shape and classes are declared; how many records there are is nobody's business."""
    assert found(kit, "data").says == "records of shape (8, 8, 1) in 10 declared classes can be read"
    shown = " ".join(f"{item.says} {item.fix}" for item in examine(kit))
    assert not re.search(r"\b360\b", shown)  # as many has the digits' test split


def test_a_ledger_in_use_is_verified_and_left_as_it_is(kit: Kit) -> None:
    spend(kit)
    before = (kit.guard / "ledger.db").read_bytes()
    assert "every entry verified" in found(kit, "ledger").says
    assert (kit.guard / "ledger.db").read_bytes() == before
    assert stat.S_IMODE((kit.guard / "ledger.db").stat().st_mode) == 0o600


@pytest.mark.parametrize(("free", "state"), [(10_000_000, State.PROBLEM), (500_000_000, State.WARNING)])
def test_a_disk_that_fills_up(kit: Kit, monkeypatch: pytest.MonkeyPatch, free: int, state: State) -> None:
    usage = shutil.disk_usage("/")._replace(free=free)
    monkeypatch.setattr(doctor_ledger.shutil, "disk_usage", lambda folder: usage)
    assert found(kit, "disk").state is state


def test_a_kernel_without_landlock(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "landlock_version", lambda: 0)
    assert "two users" in found(kit, "landlock").fix


def test_another_flower(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_machine, "version", lambda name: "1.41.0")
    assert "1.41.0" in found(kit, "flower").says


def test_a_folder_of_another_user_ends_only_its_examination(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may enter every folder, so the refusal is staged."""

    def refuse(folder: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(folder))

    monkeypatch.setattr(doctor_ledger.shutil, "disk_usage", refuse)
    assert "as the user who runs the guard" in found(kit, "files").fix
    assert found(kit, "node key").state is State.OK


def test_a_running_guard_is_recognised(kit: Kit) -> None:
    edit(kit.silo_toml, "../socket/guard.sock", f"../{SILO}.sock")
    assert "not running" in found(kit, "guard").says
    with FakeGuard(SILO, kit.folder):
        assert "running at" in found(kit, "guard").says


def test_another_silos_guard_is_recognised(kit: Kit) -> None:
    edit(kit.silo_toml, "../socket/guard.sock", "../charite.sock")
    with FakeGuard("charite", kit.folder):
        finding = found(kit, "guard")
    assert finding.state is State.PROBLEM
    assert "that of charite" in finding.says


def test_a_socket_of_something_else_is_recognised(kit: Kit) -> None:
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.bind(str(kit.socket / "guard.sock"))
        stranger.listen()
        assert "is no guard" in found(kit, "guard").says


@contextlib.contextmanager
def tls_server(address: str, folder: Path, stem: str, client_ca: Path | None = None) -> Iterator[None]:
    """Speaks TLS as gRPC does at first, and sends one byte to who is let in."""
    host, port = address.rsplit(":", 1)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / f"{stem}.crt", folder / f"{stem}.key")
    context.set_alpn_protocols(["h2"])
    if client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(client_ca)

    def serve(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                plain, _ = listener.accept()
                with contextlib.suppress(OSError), context.wrap_socket(plain, server_side=True) as secured:
                    secured.sendall(b"x")

    with socket.create_server((host, int(port))) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_the_right_server_on_both_ports(federation: FederationFolder, kit: Kit) -> None:
    server = load_courier(kit.courier_toml).server
    authority = federation.server / "ca.crt"
    with (
        tls_server(server.fleet, federation.server, "server"),
        tls_server(server.exchange, federation.server, "server", authority),
    ):
        assert found(kit, "fleet port").state is State.OK
        assert "accepts our certificate" in found(kit, "exchange port").says


def test_a_server_of_another_authority(federation: FederationFolder, kit: Kit) -> None:
    other = FederationFolder.create(federation.folder.parent / "other", Place((LOOPBACK,)))
    with tls_server(load_courier(kit.courier_toml).server.fleet, other.server, "server"):
        finding = found(kit, "fleet port")
    assert finding.state is State.PROBLEM
    assert "must not trust" in finding.says


def test_a_server_by_another_name(federation: FederationFolder, kit: Kit) -> None:
    identity = Authority.load(federation.authority).issue("server", ["other.example"], server=True)
    write_identity(federation.server, "misnamed", *identity)
    with tls_server(load_courier(kit.courier_toml).server.fleet, federation.server, "misnamed"):
        assert "mismatch" in found(kit, "fleet port").says


def test_an_exchange_that_rejects_us(federation: FederationFolder, kit: Kit) -> None:
    other = FederationFolder.create(federation.folder.parent / "other", Place((LOOPBACK,)))
    address = load_courier(kit.courier_toml).server.exchange
    with tls_server(address, federation.server, "server", other.server / "ca.crt"):
        finding = found(kit, "exchange port")
    assert finding.state is State.PROBLEM
    assert "know our certificate" in finding.fix


def test_a_port_that_speaks_no_tls(kit: Kit) -> None:
    host, port = load_courier(kit.courier_toml).server.fleet.rsplit(":", 1)

    def greet(listener: socket.socket) -> None:
        stream, _ = listener.accept()
        with stream:
            stream.sendall(b"220 mail ready\r\n")
            stream.recv(1000)

    with socket.create_server((host, int(port))) as listener:
        thread = threading.Thread(target=greet, args=(listener,))
        thread.start()
        finding = found(kit, "fleet port")
        thread.join()
    assert finding.state is State.PROBLEM
    assert "right port" in finding.fix
