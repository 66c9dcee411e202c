"""The head file beside the ledger: it remembers how far the ledger had come.

It is written after each commit, so it may lag behind the ledger by what a crash cut short, but is never ahead of it:
a head file that knows of an entry the ledger lacks means that the ledger was cut or replaced by an older copy.
"""

from __future__ import annotations

from pathlib import Path

from silosynth.client.guard.private_file import replace_private_file
from silosynth.common.errors import LedgerError, VerificationFailed
from silosynth.common.heads import Head


def head_path(ledger: Path) -> Path:
    return ledger.with_name(f"{ledger.name}.head")


def read_head(ledger: Path, public_key: bytes) -> Head | None:
    """The head last written, which only the guard's own key can have signed; None where there is no file."""
    path = head_path(ledger)
    try:
        head = Head.from_bytes(path.read_bytes())
        head.verify()
    except FileNotFoundError:
        return None
    except VerificationFailed as error:
        raise LedgerError(f"{path.name}: {error}") from error
    if head.public_key != public_key:
        raise LedgerError(f"{path.name}: another key signed it")
    return head


def write_head(ledger: Path, head: Head) -> None:
    try:
        replace_private_file(head_path(ledger), head.to_bytes())
    except OSError as error:
        raise LedgerError(
            f"{head_path(ledger)} cannot be written: {error.strerror}: nothing was sent; asked again, the stored "
            "answer is there"
        ) from error
