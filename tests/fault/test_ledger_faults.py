"""Disks and files that fail under the ledger: refused with the right code, nothing sent or charged, nothing lost.

Damage inside the database is in test_guard_bad_input.py; here it is the file system, and the write-ahead log.
"""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
from support.guards import counts_bytes, ignore_progress, open_ledger, silo_tables, toy_guard, toy_records
from support.killable_guard import GuardProcess, write_silo

from silosynth.client.guard.guard import Guard
from silosynth.client.guard.identity import load_or_create
from silosynth.client.guard.ledger import Ledger
from silosynth.common.errors import LedgerError, LedgerRolledBack

NOISES = (50.0, 60.0, 70.0, 80.0)
NOBODY = 65534
LEDGER_FILES = ("ledger.db", "ledger.db-wal", "ledger.db-shm")
Answers = dict[float, bytes]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A place that other users can reach, unlike pytest's own folders."""
    with tempfile.TemporaryDirectory(prefix="guard-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def answers(guard: Guard) -> Answers:
    return {noise: guard.answer(counts_bytes(noise), ignore_progress).sealed for noise in NOISES}


@pytest.fixture
def written(folder: Path) -> Answers:
    """Leaves a closed ledger of four answers in the folder."""
    with closing(open_ledger(folder)) as ledger:
        return answers(toy_guard(ledger))


def assert_serves_again(folder: Path, expected: Answers) -> None:
    with closing(open_ledger(folder)) as ledger:
        guard = toy_guard(ledger)
        assert guard.budget().releases == len(expected)
        assert answers(guard) == expected
        assert not guard.answer(counts_bytes(90.0), ignore_progress).replayed


def refusal(folder: Path) -> LedgerError:
    with pytest.raises(LedgerError, match=r"ledger\.db") as refused:
        open_ledger(folder)
    return refused.value


# --- file systems that are full or read-only


@contextmanager
def mounted(folder: Path, size: str) -> Iterator[Path]:
    """A small file system of its own."""
    place = folder / "disk"
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", place], capture_output=True)
    if done.returncode != 0:
        pytest.skip("this user may not mount file systems; unit/test_ledger.py has a full disk by RLIMIT_FSIZE")
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


def fill(disk: Path) -> Path:
    """A file that takes all the space that is left."""
    ballast = disk / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    assert os.statvfs(disk).f_bavail == 0
    return ballast


def test_disk_that_fills_up_while_serving(folder: Path) -> None:
    with mounted(folder, "1m") as disk, closing(open_ledger(disk)) as ledger:
        guard = toy_guard(ledger)
        expected = answers(guard)
        before = guard.budget()
        ballast = fill(disk)
        for _ in range(3):
            with pytest.raises(LedgerError, match="nothing was sent"):
                guard.answer(counts_bytes(90.0), ignore_progress)
        assert guard.budget() == before
        assert answers(guard) == expected
        ballast.unlink()
        assert not guard.answer(counts_bytes(90.0), ignore_progress).replayed
        assert answers(guard) == expected


def test_start_on_a_full_disk(folder: Path) -> None:
    """Neither a new ledger nor one that a killed guard left behind; no half of a file stays."""
    with mounted(folder, "256k") as disk:
        identity = load_or_create(folder / "receipts.key")
        ballast = fill(disk)
        with pytest.raises(LedgerError, match="space on its disk"):
            Ledger.open(disk / "ledger.db", "toy", identity)
        assert list(disk.iterdir()) == [ballast]
        ballast.unlink()
        Ledger.open(disk / "ledger.db", "toy", identity).close()


def test_read_only_file_system(folder: Path) -> None:
    with mounted(folder, "1m") as disk:
        config = write_silo(disk, silo_tables(), toy_records())
        with closing(open_ledger(disk)) as ledger:
            expected = answers(toy_guard(ledger))
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        with GuardProcess(config) as process:
            code, stderr = process.end()
        assert code == refusal(disk).exit_code == LedgerError.exit_code
        assert "Traceback" not in stderr
        subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
        assert_serves_again(disk, expected)


# --- permissions


@contextmanager
def without_privileges(folder: Path) -> Iterator[None]:
    """Modes mean nothing to root, so be somebody else for a while."""
    if os.geteuid() != 0:
        yield
        return
    for path in (folder, *folder.iterdir()):
        os.chown(path, NOBODY, -1)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize(
    ("name", "mode"),
    [("ledger.db", 0o000), ("ledger.db", 0o400), ("ledger.db", 0o200), (".", 0o000), (".", 0o500), (".", 0o600)],
)
def test_permission_denied(folder: Path, written: Answers, name: str, mode: int) -> None:
    identity = load_or_create(folder / "receipts.key")
    target = folder / name
    usual = target.stat().st_mode
    with without_privileges(folder):
        target.chmod(mode)
        try:
            with pytest.raises(LedgerError, match="permissions"):
                Ledger.open(folder / "ledger.db", "toy", identity)
        finally:
            target.chmod(usual)
        assert_serves_again(folder, written)


# --- files that are not what they were


def _another_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE entries (sequence INTEGER PRIMARY KEY, query BLOB, sealed BLOB)")


IMPOSTORS: dict[str, Callable[[Path], object]] = {
    "nothing": lambda path: None,
    "empty file": lambda path: path.touch(),
    "folder": lambda path: path.mkdir(),
    "pipe": lambda path: os.mkfifo(path),
    "device": lambda path: path.symlink_to("/dev/null"),
    "link to nowhere": lambda path: path.symlink_to("nowhere"),
    "link to itself": lambda path: path.symlink_to(path.name),
    "text": lambda path: path.write_text("SQLite format 3\0" + "but no more than that " * 1000),
    "another database": _another_database,
}


@pytest.mark.parametrize("impostor", IMPOSTORS)
def test_something_else_in_the_ledgers_place(folder: Path, written: Answers, impostor: str) -> None:
    """A ledger that is gone is not begun anew: the head file beside it knows better."""
    path, aside = folder / "ledger.db", folder / "aside"
    path.rename(aside)
    IMPOSTORS[impostor](path)
    refusal(folder)
    if path.is_dir():
        path.rmdir()
    for left in LEDGER_FILES:
        (folder / left).unlink(missing_ok=True)
    aside.rename(path)
    assert_serves_again(folder, written)


def test_missing_ledger_ends_the_process_as_rolled_back(folder: Path, written: Answers) -> None:
    config = write_silo(folder, silo_tables(), toy_records())
    (folder / "ledger.db").unlink()
    with GuardProcess(config) as process:
        code, stderr = process.end()
    assert code == LedgerRolledBack.exit_code
    assert stderr.startswith("LedgerRolledBack: ")
    assert not (folder / "ledger.db").exists()


# --- the write-ahead log a killed guard leaves behind


@pytest.fixture
def killed(folder: Path) -> tuple[Path, Answers]:
    """The files of a guard as a SIGKILL leaves them: all four answers are in the log alone."""
    with closing(open_ledger(folder)) as ledger:
        expected = answers(toy_guard(ledger))
        left = shutil.copytree(folder, folder / "left", ignore=shutil.ignore_patterns("left"))
    return left, expected


@contextmanager
def replaced(path: Path, content: bytes) -> Iterator[None]:
    """`path` with other content, as a fresh copy of the folder around it sees it."""
    original = path.read_bytes()
    path.write_bytes(content)
    try:
        yield
    finally:
        path.write_bytes(original)


def refused_or_whole(left: Path, scratch: Path, expected: Answers) -> bool:
    """True when a copy of the files is refused; else it must have lost nothing."""
    shutil.copytree(left, scratch)
    try:
        with closing(open_ledger(scratch)) as ledger:
            assert answers(toy_guard(ledger)) == expected
            assert ledger.spent("default").releases == len(expected)
        return False
    except LedgerError:
        return True
    finally:
        shutil.rmtree(scratch)


def test_log_alone_is_enough(killed: tuple[Path, Answers]) -> None:
    assert_serves_again(*killed)


def test_lost_log_is_a_rollback(killed: tuple[Path, Answers]) -> None:
    left, expected = killed
    log = left / "ledger.db-wal"
    content = log.read_bytes()
    log.unlink()
    assert refusal(left).exit_code == LedgerRolledBack.exit_code
    for name in LEDGER_FILES[1:]:
        (left / name).unlink(missing_ok=True)
    log.write_bytes(content)
    assert_serves_again(left, expected)


def test_truncated_log(killed: tuple[Path, Answers], folder: Path) -> None:
    """Cut anywhere, by as little as one byte: SQLite alone would serve what is left as if nothing had happened."""
    left, expected = killed
    log = left / "ledger.db-wal"
    content = log.read_bytes()
    lengths = [0, 1, 32, len(content) - 1, *random.Random(5).sample(range(len(content)), 40)]
    for length in lengths:
        with replaced(log, content[:length]):
            assert refused_or_whole(left, folder / "copy", expected), length
    print(f"\nwrite-ahead log truncated at {len(lengths)} places: all refused")


def test_flipped_bits_in_the_log(killed: tuple[Path, Answers], folder: Path) -> None:
    left, expected = killed
    log = left / "ledger.db-wal"
    content = log.read_bytes()
    positions = random.Random(6).sample(range(len(content)), 60)
    refused = 0
    for position in positions:
        flipped = bytearray(content)
        flipped[position] ^= 1 << position % 8
        with replaced(log, bytes(flipped)):
            refused += refused_or_whole(left, folder / "copy", expected)
    print(f"\n{len(positions)} flipped bits in the write-ahead log: {refused} refused, the others changed nothing")
    assert refused > len(positions) / 2
