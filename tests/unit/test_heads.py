"""Heads: signed, remembered beside the ledger and at the server, so that an older copy is noticed."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from support.guards import counts_bytes, ignore_progress, open_ledger, toy_guard

from silosynth.client.guard.head_file import head_path
from silosynth.client.guard.identity import Identity, load_existing
from silosynth.client.guard.ledger import Ledger, Step
from silosynth.common.errors import (
    ConfigError,
    LedgerError,
    LedgerRolledBack,
    PeerRejected,
    SilosynthError,
    VerificationFailed,
)
from silosynth.common.heads import Head
from silosynth.common.queries import decode
from silosynth.server.witness import Witness

KEY = Identity(Ed25519PrivateKey.generate())
OTHER_KEY = Identity(Ed25519PrivateKey.generate())


def head(sequence: int, content: bytes = b"h", key: Identity = KEY, silo: str = "toy") -> Head:
    return key.sign(Head(silo, sequence, content * 32 if sequence else b"", key.public_key))


def commit(ledger: Ledger, noise: float) -> None:
    query = counts_bytes(noise)
    ledger.commit("default", query, decode(query).event(), lambda spent: None, lambda: b"payload")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A ledger of two entries, closed."""
    with closing(open_ledger(tmp_path)) as ledger:
        commit(ledger, 5.0)
        commit(ledger, 6.0)
    return tmp_path


def test_head_travels_and_verifies() -> None:
    signed = head(3)
    signed.verify()
    assert Head.from_bytes(signed.to_bytes()) == Head.from_proto(signed.to_proto()) == signed


@pytest.mark.parametrize(
    "change", [{"silo": "x"}, {"sequence": 4}, {"hash": b""}, {"public_key": OTHER_KEY.public_key}, {"public_key": b""}]
)
def test_changed_head_does_not_verify(change: dict[str, object]) -> None:
    with pytest.raises(VerificationFailed, match="not signed"):
        replace(head(3), **change).verify()  # type: ignore[arg-type]


def test_head_beyond_what_a_ledger_can_count_is_refused() -> None:
    with pytest.raises(VerificationFailed, match="more entries than any ledger"):
        head(1 << 63).verify()


def test_bytes_that_are_no_head() -> None:
    with pytest.raises(VerificationFailed, match="not the head"):
        Head.from_bytes(b"\xff")


def test_ledger_tells_its_head(tmp_path: Path) -> None:
    with closing(open_ledger(tmp_path)) as ledger:
        assert (ledger.head().sequence, ledger.head().hash) == (0, b"")
        commit(ledger, 5.0)
        ledger.head().verify()
        assert ledger.head().sequence == 1
        assert Head.from_bytes(head_path(tmp_path / "ledger.db").read_bytes()) == ledger.head()


def test_older_copy_of_the_ledger_alone_is_refused(folder: Path) -> None:
    older = (folder / "ledger.db").read_bytes()
    with closing(open_ledger(folder)) as ledger:
        commit(ledger, 7.0)
    (folder / "ledger.db").write_bytes(older)
    with pytest.raises(
        LedgerRolledBack, match=r"entry 3 was released but is missing.*restore the newest copy"
    ) as error:
        open_ledger(folder)
    assert error.value.exit_code == 13


def test_copy_that_went_its_own_way_is_refused(folder: Path) -> None:
    older, older_head = (folder / "ledger.db").read_bytes(), head_path(folder / "ledger.db").read_bytes()
    with closing(open_ledger(folder)) as ledger:
        commit(ledger, 7.0)
        seen = ledger.head()
    (folder / "ledger.db").write_bytes(older)
    head_path(folder / "ledger.db").write_bytes(older_head)
    with closing(open_ledger(folder)) as ledger:
        commit(ledger, 8.0)
        with pytest.raises(LedgerRolledBack, match="went its own way"):
            ledger.check_follows(seen)


def test_a_ledger_that_is_gone_is_not_begun_anew(folder: Path) -> None:
    (folder / "ledger.db").unlink()
    with pytest.raises(LedgerRolledBack, match="knows of 2 entries"):
        open_ledger(folder)


def test_a_crash_before_the_head_is_written_loses_nothing(folder: Path) -> None:
    def interrupt(step: Step) -> None:
        if step is Step.COMMITTED:
            raise InterruptedError

    with closing(open_ledger(folder, interrupt)) as ledger, pytest.raises(InterruptedError):
        commit(ledger, 7.0)
    assert Head.from_bytes(head_path(folder / "ledger.db").read_bytes()).sequence == 2
    with closing(open_ledger(folder)) as ledger:
        assert ledger.head().sequence == 3


@pytest.mark.parametrize("content", [b"\xff", b"", head(1, key=OTHER_KEY).to_bytes()])
def test_damaged_head_file_is_refused(folder: Path, content: bytes) -> None:
    head_path(folder / "ledger.db").write_bytes(content)
    with pytest.raises(LedgerError, match=r"ledger\.db\.head"):
        open_ledger(folder)


def test_a_ledger_that_may_not_be_written_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even root, whom no permission holds back, is told by the file system when it is mounted read-only."""
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    with pytest.raises(LedgerError, match="may not be written"):
        open_ledger(folder)


def test_without_a_head_file_the_ledger_opens(folder: Path) -> None:
    head_path(folder / "ledger.db").unlink()
    with closing(open_ledger(folder)) as ledger:
        assert ledger.head().sequence == 2


def test_head_that_cannot_be_written_refuses_and_the_answer_is_kept(folder: Path) -> None:
    with closing(open_ledger(folder)) as ledger:
        head_path(folder / "ledger.db").unlink()
        head_path(folder / "ledger.db").mkdir()
        with pytest.raises(LedgerError, match="cannot be written"):
            commit(ledger, 7.0)
        assert ledger.spent("default").releases == 3
        assert not list(folder.glob(".ledger*"))


def test_key_is_not_made_by_those_who_only_look(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no key yet"):
        load_existing(tmp_path / "receipts.key")


def test_guard_acknowledges_what_it_signed(tmp_path: Path) -> None:
    with closing(open_ledger(tmp_path)) as ledger:
        guard = toy_guard(ledger)
        nothing = guard.head()
        guard.answer(counts_bytes(8.0), ignore_progress)
        assert guard.witness(nothing) == guard.witness(guard.head()) == guard.head()
        assert Head.from_proto(guard.describe().head) == guard.head()


@pytest.mark.parametrize("forge", [lambda own: head(9), lambda own: replace(own, sequence=9)])
def test_invented_heads_do_not_silence_the_guard(tmp_path: Path, forge: Callable[[Head], Head]) -> None:
    with closing(open_ledger(tmp_path)) as ledger:
        guard = toy_guard(ledger)
        with pytest.raises(VerificationFailed):
            guard.witness(forge(guard.head()))
        guard.answer(counts_bytes(8.0), ignore_progress)


def test_guard_of_an_older_copy_answers_nothing(folder: Path) -> None:
    with closing(open_ledger(folder)) as ledger:
        newer = replace(ledger.head(), sequence=3)
        seen = ledger.identity.sign(newer)
    told: list[bool] = []
    for path in folder.glob("ledger.db*"):
        path.unlink()
    with closing(open_ledger(folder)) as ledger:
        guard = toy_guard(ledger, on_rollback=lambda: told.append(True))
        with pytest.raises(LedgerRolledBack, match="server has seen a newer ledger"):
            guard.witness(seen)
        with pytest.raises(LedgerRolledBack):
            guard.answer(counts_bytes(8.0), ignore_progress)
        assert told == [True]
        assert guard.budget().releases == 0


@pytest.fixture
def witness(tmp_path: Path) -> Witness:
    return Witness(tmp_path / "witness.db")


def test_witness_keeps_the_highest_head(witness: Witness, tmp_path: Path) -> None:
    assert witness.recall("toy", KEY.public_key) is None
    for number in (0, 2, 1):
        witness.note(head(number))
    assert Witness(tmp_path / "witness.db").recall("toy", KEY.public_key) == head(2)
    witness.confirm(head(2))
    witness.confirm(head(3))
    assert witness.recall("toy", KEY.public_key) == head(3)


@pytest.mark.parametrize("late", [head(1), head(2, b"x")])
def test_witness_refuses_an_older_or_another_history(witness: Witness, late: Head) -> None:
    witness.note(head(2))
    with pytest.raises(LedgerRolledBack):
        witness.confirm(late)
    assert witness.recall("toy", KEY.public_key) == head(2)


def test_witness_refuses_a_fork_that_comes_with_a_release(witness: Witness) -> None:
    witness.note(head(2))
    with pytest.raises(LedgerRolledBack, match="not the one we have seen"):
        witness.note(head(2, b"x"))


def refused(action: Callable[[], None]) -> type[SilosynthError]:
    with pytest.raises(SilosynthError) as error:
        action()
    return type(error.value)


def test_witness_knows_silos_by_their_key(witness: Witness) -> None:
    witness.meet(head(0), "toy", "certificate")
    witness.meet(head(5), "toy", "certificate")
    assert refused(lambda: witness.meet(head(0, key=OTHER_KEY), "toy", "certificate")) is PeerRejected
    assert refused(lambda: witness.meet(head(0, silo="other"), "toy", "certificate")) is PeerRejected
    assert refused(lambda: witness.meet(replace(head(0), sequence=1), "toy", "certificate")) is VerificationFailed
    witness.meet(head(0, key=OTHER_KEY), "toy", "that of a new registration")


def test_a_silo_registered_anew_with_its_old_key_is_still_remembered(witness: Witness) -> None:
    witness.note(head(2))
    witness.meet(head(1), "toy", "that of a new registration")
    with pytest.raises(LedgerRolledBack):
        witness.confirm(head(1))


def test_witness_without_a_folder_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot keep the heads"):
        Witness(tmp_path / "missing" / "witness.db")
