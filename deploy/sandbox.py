"""Run a program that cannot open chosen folders: the courier must not read records or ledger.

Flower ships the client app from the server. Where guard and courier run as one user on one machine, the kernel's
Landlock keeps that code out of the guard's folder; it also keeps it from tracing processes outside the sandbox.
Landlock lists what is allowed, so everything beside the denied folders is: python -m silosynth.deploy.sandbox
--deny FOLDER --deny FOLDER -- COMMAND...
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import struct
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_PR_SET_NO_NEW_PRIVS = 38
_VERSION_FLAG = 1
_RULE_PATH_BENEATH = 1
_FILE_RIGHTS = 0b111  # execute, write, read: what a rule on a file may grant
# Rights by Landlock version: 1 has bits 0..12, 2 adds refer, 3 truncate, 5 ioctl.
_RIGHTS_BY_VERSION = ((5, 0xFFFF), (3, 0x7FFF), (2, 0x3FFF), (1, 0x1FFF))

_libc = ctypes.CDLL(None, use_errno=True)


def landlock_version() -> int:
    """0 where the kernel has no Landlock."""
    if not sys.platform.startswith("linux"):
        return 0
    return max(0, int(_libc.syscall(_CREATE_RULESET, None, 0, _VERSION_FLAG)))


def deny(folders: Sequence[Path]) -> None:
    """From now on neither this process nor its children can open anything below any of `folders`."""
    rights = next(bits for version, bits in _RIGHTS_BY_VERSION if landlock_version() >= version)
    ruleset = _checked(_CREATE_RULESET, struct.pack("=Q", rights), 8, 0)
    for path in _everything_beside({folder.resolve() for folder in folders}):
        _allow(ruleset, path, rights)
    if _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    _checked(_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def _everything_beside(folders: set[Path]) -> Iterator[Path]:
    """The siblings of `folders` and of each of their ancestors.

    No symbolic links: a rule would allow what they point to, which may be denied; through an allowed path it is allowed
    anyway.
    """
    outermost = {folder for folder in folders if not folders.intersection(folder.parents)}
    ancestors = {ancestor for folder in outermost for ancestor in folder.parents}
    for ancestor in ancestors:
        with contextlib.suppress(OSError):  # not ours to list: then what is in it stays denied
            yield from (
                entry
                for entry in ancestor.iterdir()
                if entry not in outermost and entry not in ancestors and not entry.is_symlink()
            )


def _allow(ruleset: int, path: Path, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # vanished, or not ours to open: then it stays denied
    granted = rights if path.is_dir() else rights & _file_rights(rights)
    _libc.syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, struct.pack("=Qi", granted, descriptor), 0)
    os.close(descriptor)


def _file_rights(rights: int) -> int:
    truncate_and_ioctl = (1 << 14) | (1 << 15)
    return _FILE_RIGHTS | (rights & truncate_and_ioctl)


def _checked(*arguments: int | bytes | None) -> int:
    result = int(_libc.syscall(*arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--deny", type=Path, action="append", required=True)
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    deny(options.deny)
    os.execvp(options.command[0], options.command)  # noqa: S606


if __name__ == "__main__":
    main()
