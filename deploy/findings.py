"""What a check found, in words a site's administrator can act on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class State(StrEnum):
    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Finding:
    """`fix` is what to do about it; there is one for everything that is not ok."""

    check: str
    state: State
    says: str
    fix: str = ""


def ok(check: str, says: str) -> Finding:
    return Finding(check, State.OK, says)


def warning(check: str, says: str, fix: str) -> Finding:
    return Finding(check, State.WARNING, says, fix)


def problem(check: str, says: str, fix: str) -> Finding:
    return Finding(check, State.PROBLEM, says, fix)


def unusable(check: str, path: Path, if_missing: str) -> Finding | None:
    """The problem with a file that must be readable; None when it is."""
    try:
        path.open("rb").close()
    except FileNotFoundError:
        return problem(check, f"{path} is missing", if_missing)
    except OSError as error:
        return problem(check, f"{path} cannot be read: {error.strerror}", f"chown or chmod it for this user: {path}")
    return None


def too_open(check: str, path: Path, mode: str) -> Finding | None:
    """The problem with a file or folder that others may open; `mode` is what it should be."""
    if path.stat().st_mode & 0o077:
        return problem(check, f"other users of this machine may open {path}", f"chmod {mode} {path}")
    return None
