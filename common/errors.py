"""Every error silosynth raises on purpose, and the exit code each one ends a command with.

SilosynthError
├── ConfigError                 3   a TOML file, an option or a folder is wrong
│   └── DataError               3   records are missing, malformed or of the wrong shape
│       └── OneSetOnly          3   a part was asked for of a source that is one set
├── QueryError                  4   a query that cannot be decoded or makes no sense
├── NotEnoughData               5   a plan asks for more data than there is
├── PolicyDenied               10   the silo's policy does not allow this
├── BudgetExhausted            11   the silo's privacy budget does not allow this
├── LedgerError                12   the ledger is damaged or cannot be written
│   └── LedgerRolledBack       13   the ledger is older than what the server has seen
├── ConsentPending             14   the silo's people have yet to allow this
├── PeerRejected               20   a peer could not prove who it is
├── QuorumNotMet               21   too few silos took part
├── RunFailed                  22   a process of the federation ended early
├── SiloUnavailable            23   a silo's guard does not answer
├── CatalogUnavailable         24   a server's catalog does not answer
├── VerificationFailed         30   a release or receipt is not what it claims to be
└── ReleaseWithdrawn           31   a release was taken back by its publisher
"""

from __future__ import annotations


class SilosynthError(Exception):
    """Says what happened, why, what is left, and the next command."""

    exit_code = 1


class ConfigError(SilosynthError):
    exit_code = 3


class DataError(ConfigError):
    pass


class OneSetOnly(DataError):
    pass


class QueryError(SilosynthError):
    exit_code = 4


class NotEnoughData(SilosynthError):
    exit_code = 5


class PolicyDenied(SilosynthError):
    exit_code = 10


class BudgetExhausted(SilosynthError):
    exit_code = 11


class LedgerError(SilosynthError):
    exit_code = 12


class LedgerRolledBack(LedgerError):
    exit_code = 13


class ConsentPending(SilosynthError):
    exit_code = 14


class PeerRejected(SilosynthError):
    exit_code = 20


class QuorumNotMet(SilosynthError):
    exit_code = 21


class RunFailed(SilosynthError):
    exit_code = 22


class SiloUnavailable(SilosynthError):
    exit_code = 23


class CatalogUnavailable(SilosynthError):
    exit_code = 24


class VerificationFailed(SilosynthError):
    exit_code = 30


class ReleaseWithdrawn(SilosynthError):
    exit_code = 31


def _tree(root: type[SilosynthError]) -> dict[str, type[SilosynthError]]:
    found = {root.__name__: root}
    for child in root.__subclasses__():
        found |= _tree(child)
    return found


def from_wire(name: str, message: str) -> SilosynthError:
    """Rebuild an error a peer sent by class name; an unknown name becomes the root class."""
    return _tree(SilosynthError).get(name, SilosynthError)(message)
