"""The guard's shelf of public files: what it takes in, what it keeps, what a crash leaves behind."""

from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from silosynth.client.guard import artifacts
from silosynth.client.guard.artifacts import Shelf
from silosynth.common import shipped
from silosynth.common.errors import PolicyDenied, QueryError, SiloUnavailable, VerificationFailed

CONTENT = b"weights" * 1000


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


WANTED = digest(CONTENT)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "artifacts"


@pytest.fixture
def shelf(folder: Path) -> Shelf:
    shelf = Shelf(folder)
    shelf.want([WANTED])
    return shelf


def put(shelf: Shelf, content: bytes) -> str:
    shelf.want([digest(content)])
    shelf.deposit(digest(content), [content])
    return digest(content)


def test_a_deposit_is_private_and_survives_a_restart(shelf: Shelf, folder: Path) -> None:
    assert shelf.missing([WANTED]) == (WANTED,)
    shelf.deposit(WANTED, [CONTENT[:10], b"", CONTENT[10:]])
    assert [file.name for file in folder.iterdir()] == [WANTED]
    assert (folder.stat().st_mode & 0o777, (folder / WANTED).stat().st_mode & 0o777) == (0o700, 0o600)
    again = Shelf(folder)
    assert again.missing([WANTED]) == ()
    assert again.read(WANTED) == CONTENT


def test_what_is_there_need_not_be_deposited_again(shelf: Shelf) -> None:
    shelf.deposit(WANTED, [CONTENT])
    shelf.deposit(WANTED, [b"nobody looks at this"])
    assert shelf.read(WANTED) == CONTENT


@pytest.mark.parametrize("name", [digest(b"something else"), "", "../ledger.db", WANTED.upper()])
def test_what_nobody_waits_for_is_not_taken_in(shelf: Shelf, folder: Path, name: str) -> None:
    (folder.parent / "ledger.db").touch()
    with pytest.raises(PolicyDenied, match="waits for"):
        shelf.deposit(name, [b"something else"])
    assert not folder.exists()


def test_a_courier_cannot_make_the_list_of_wanted_ones_grow(shelf: Shelf) -> None:
    shelf.want(digest(bytes([number])) for number in range(artifacts._MOST_WANTED))
    with pytest.raises(PolicyDenied):
        shelf.deposit(WANTED, [CONTENT])


@pytest.mark.parametrize("chunks", [[], [b"garbage"], [CONTENT[:-1]], [CONTENT, b"more"], [CONTENT[1:], CONTENT[:1]]])
def test_bytes_of_another_digest_never_appear(shelf: Shelf, folder: Path, chunks: list[bytes]) -> None:
    with pytest.raises(VerificationFailed, match="incomplete or something else"):
        shelf.deposit(WANTED, chunks)
    assert list(folder.iterdir()) == []
    shelf.deposit(WANTED, [CONTENT])  # it is still waited for


def test_too_large_a_deposit_ends_at_the_limit(shelf: Shelf, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "MAX_ARTIFACT_BYTES", 1 << 20)
    given = []

    def endless() -> Iterator[bytes]:
        while True:
            given.append(1 << 16)
            yield bytes(1 << 16)

    with pytest.raises(QueryError, match="larger than 1 MB"):
        shelf.deposit(WANTED, endless())
    assert sum(given) <= (1 << 20) + (1 << 16)
    assert list(folder.iterdir()) == []


def test_the_oldest_make_room(folder: Path) -> None:
    shelf = Shelf(folder, capacity=2500)
    names = []
    for number in range(4):
        names.append(put(shelf, bytes([number]) * 1000))
        os.utime(folder / names[-1], (number, number))
    assert shelf.missing(names) == tuple(names[:2])
    put(shelf, b"small")
    assert shelf.missing(names) == tuple(names[:2])


def test_a_full_disk_is_no_internal_error(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, content: Iterable[bytes]) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(artifacts, "create_private_file", full)
    with pytest.raises(SiloUnavailable, match="No space left on device"):
        shelf.deposit(WANTED, [CONTENT])


def test_what_the_disk_changed_is_not_read_but_fetched_again(shelf: Shelf, folder: Path) -> None:
    shelf.deposit(WANTED, [CONTENT])
    (folder / WANTED).write_bytes(CONTENT[:-1] + b"?")
    with pytest.raises(QueryError, match=f"{WANTED}; nothing was charged"):
        shelf.read(WANTED)
    assert shelf.missing([WANTED]) == (WANTED,)
    with pytest.raises(QueryError, match="nothing was charged"):
        shelf.read(WANTED)


KILLED_MIDWAY = """
import os, signal, sys
from pathlib import Path
from silosynth.client.guard.artifacts import Shelf

def chunks():
    yield bytes(1 << 20)
    os.kill(os.getpid(), signal.SIGKILL)

shelf = Shelf(Path(sys.argv[1]))
shelf.want([sys.argv[2]])
shelf.deposit(sys.argv[2], chunks())
"""


def test_a_guard_killed_midway_leaves_nothing_on_the_shelf(folder: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED_MIDWAY, str(folder), WANTED], check=False, timeout=60)
    (unfinished,) = folder.iterdir()
    assert unfinished.name != WANTED
    shelf = Shelf(folder)
    assert list(folder.iterdir()) == []
    assert shelf.missing([WANTED]) == (WANTED,)


def test_shipped_backbones_are_always_there(shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipped, "WEIGHTS", tmp_path)
    (tmp_path / "small.safetensors").write_bytes(CONTENT)
    assert shipped.shipped_backbones() == {"small": WANTED}
    assert (shipped.backbone_name(WANTED), shipped.backbone_name("0" * 64)) == ("small", "0" * 64)
    assert shelf.missing([WANTED]) == ()
    assert shelf.read(WANTED) == CONTENT


def test_the_shelf_is_found_without_torch() -> None:
    program = "import sys, silosynth.client.guard.artifacts; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
