"""The ledger: one row per answer, written once, chained, durable, private."""

from __future__ import annotations

import hashlib
import resource
import sqlite3
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from support.guards import counts_bytes, open_ledger

from silosynth.client.guard.identity import load_or_create
from silosynth.client.guard.ledger import Answered, Ledger, Step
from silosynth.client.guard.private_file import create_private_file
from silosynth.common.errors import BudgetExhausted, ConfigError, LedgerError
from silosynth.common.events import Event, SampledGaussian
from silosynth.common.queries import decode, digest
from silosynth.common.releases import Receipt
from silosynth.protos.v1 import release_pb2


def allow(spent: tuple[Event, ...]) -> None:
    pass


def commit(ledger: Ledger, noise: float, dataset: str = "default", payload: bytes = b"payload") -> Answered:
    query = counts_bytes(noise)
    return ledger.commit(dataset, query, decode(query).event(), allow, lambda: payload)


def receipt_of(sealed: bytes) -> Receipt:
    return Receipt.from_bytes(release_pb2.SealedRelease.FromString(sealed).receipt)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with closing(open_ledger(tmp_path)) as opened:
        yield opened


def test_new_ledger_is_empty_and_private(ledger: Ledger, tmp_path: Path) -> None:
    assert ledger.spent("default").events == ()
    assert ledger.find("default", digest(counts_bytes(5.0))) is None
    commit(ledger, 5.0)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == dict.fromkeys(
        ["ledger.db", "ledger.db-wal", "ledger.db-shm", "ledger.db.head", "receipts.key"], 0o600
    )


def test_same_query_is_stored_once(ledger: Ledger) -> None:
    first = commit(ledger, 5.0, payload=b"first")
    second = commit(ledger, 5.0, payload=b"second")
    assert (first.replayed, second.replayed) == (False, True)
    assert first.sealed == second.sealed == ledger.find("default", digest(counts_bytes(5.0)))
    assert ledger.spent("default").releases == 1


def test_spending_is_kept_by_dataset(ledger: Ledger) -> None:
    commit(ledger, 5.0)
    commit(ledger, 6.0)
    commit(ledger, 5.0, dataset="other")
    assert ledger.spent("default").events == (SampledGaussian(5.0), SampledGaussian(6.0))
    assert ledger.spent("other").events == (SampledGaussian(5.0),)
    assert ledger.spent("unheard-of").releases == 0


def test_receipts_form_a_chain_that_continues_after_reopening(tmp_path: Path) -> None:
    receipts = []
    for noise in (5.0, 6.0, 7.0):
        with closing(open_ledger(tmp_path)) as ledger:
            receipts.append(receipt_of(commit(ledger, noise).sealed))
    for receipt in receipts:
        receipt.verify()
    assert [receipt.sequence for receipt in receipts] == [1, 2, 3]
    assert [receipt.previous_hash for receipt in receipts] == [b"", receipts[0].entry_hash, receipts[1].entry_hash]
    assert receipts[0].payload_digest == hashlib.sha256(b"payload").digest()


def test_a_refused_budget_leaves_no_trace(ledger: Ledger) -> None:
    def refuse(spent: tuple[Event, ...]) -> None:
        raise BudgetExhausted("no")

    def draw() -> bytes:
        pytest.fail("noise was drawn for a query that was refused")

    with pytest.raises(BudgetExhausted):
        ledger.commit("default", counts_bytes(5.0), SampledGaussian(5.0), refuse, draw)
    assert ledger.spent("default").releases == 0
    assert not commit(ledger, 5.0).replayed


@pytest.mark.parametrize("step", list(Step))
def test_an_interruption_at_any_step_charges_all_or_nothing(tmp_path: Path, step: Step) -> None:
    class Interruption(Exception):
        pass

    def interrupt(reached: Step) -> None:
        if reached is step:
            raise Interruption

    with closing(open_ledger(tmp_path, interrupt)) as ledger, pytest.raises(Interruption):
        commit(ledger, 5.0)
    with closing(open_ledger(tmp_path)) as ledger:
        assert ledger.spent("default").releases == (1 if step is Step.COMMITTED else 0)
        assert commit(ledger, 5.0).replayed == (step is Step.COMMITTED)


def test_steps_come_in_order(tmp_path: Path) -> None:
    steps: list[Step] = []
    with closing(open_ledger(tmp_path, steps.append)) as ledger:
        commit(ledger, 5.0)
    assert steps == list(Step)


def test_two_ledgers_on_one_file_share_the_chain(tmp_path: Path) -> None:
    """Two guards started by mistake with one configuration: SQLite's locks keep them in one chain."""
    noises = [5.0 + number % 10 for number in range(40)]
    with closing(open_ledger(tmp_path)) as one, closing(open_ledger(tmp_path)) as two, ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda task: commit(task[0], task[1]), zip([one, two] * 20, noises, strict=True)))
    assert sum(not answer.replayed for answer in answers) == 10
    assert len({answer.sealed for answer in answers}) == 10
    with closing(open_ledger(tmp_path)) as ledger:
        assert ledger.spent("default").releases == 10


REST = "event, created, previous_hash, hash, query, sealed FROM entries"


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entries SET event = x'00'",
        "DELETE FROM entries",
        f"INSERT OR REPLACE INTO entries SELECT 1, 'other', x'00', {REST}",
        f"INSERT OR REPLACE INTO entries SELECT 2, dataset, query_digest, {REST}",
    ],
)
def test_rows_can_only_be_added(tmp_path: Path, statement: str) -> None:
    with closing(open_ledger(tmp_path)) as ledger:
        commit(ledger, 5.0)
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as outsider:
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            outsider.execute(statement)
        assert outsider.execute("SELECT sequence, dataset FROM entries").fetchall() == [(1, "default")]


def test_another_key_is_refused(tmp_path: Path) -> None:
    with closing(open_ledger(tmp_path)) as ledger:
        commit(ledger, 5.0)
    (tmp_path / "receipts.key").unlink()
    with pytest.raises(LedgerError, match="another key"):
        open_ledger(tmp_path)


def test_full_disk_refuses_and_recovers(ledger: Ledger) -> None:
    commit(ledger, 5.0)
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, unlimited[1]))
    try:
        with pytest.raises(LedgerError, match="nothing was sent"):
            commit(ledger, 6.0, payload=bytes(400_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    assert ledger.spent("default").releases == 1
    assert not commit(ledger, 6.0).replayed


def test_closed_ledger_refuses(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path)
    ledger.close()
    for use in (lambda: commit(ledger, 5.0), lambda: ledger.spent("default"), lambda: ledger.find("default", b"")):
        with pytest.raises(LedgerError):
            use()


def test_unreachable_ledger_is_a_ledger_error(tmp_path: Path) -> None:
    identity = load_or_create(tmp_path / "receipts.key")
    (tmp_path / "file").write_text("")
    with pytest.raises(LedgerError):
        Ledger.open(tmp_path / "file" / "ledger.db", "toy", identity)
    with pytest.raises(LedgerError):
        Ledger.open(tmp_path, "toy", identity)


def test_key_is_created_once_and_must_stay_private(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "receipts.key"
    assert load_or_create(path).public_key == load_or_create(path).public_key
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        load_or_create(path)


def test_damaged_key_is_a_config_error(tmp_path: Path) -> None:
    path = tmp_path / "receipts.key"
    load_or_create(path)
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(ConfigError, match="backup"):
        load_or_create(path)


def test_key_of_another_kind_is_a_config_error(tmp_path: Path) -> None:
    path = tmp_path / "receipts.key"
    key = X25519PrivateKey.generate()
    create_private_file(path, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    with pytest.raises(ConfigError, match="not an Ed25519 key"):
        load_or_create(path)


def test_unreachable_key_is_a_config_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be read or created"):
        load_or_create(tmp_path / "file" / "receipts.key")
