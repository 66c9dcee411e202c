"""Which terms a guard starts with: what was adopted before, or what silo.toml says now, whichever is stricter."""

from __future__ import annotations

import logging

from silosynth.client.config import SiloConfig
from silosynth.client.guard.decisions import Decisions
from silosynth.client.guard.ledger import Ledger
from silosynth.client.guard.terms import Terms, differences, stricter
from silosynth.common.errors import ConfigError, LedgerError

_GUARD = "guard"  # who adopts when nobody has to be asked
_log = logging.getLogger("silosynth.guard")


def check_epoch(config: SiloConfig, ledger: Ledger) -> None:
    """A dataset has a budget of its own only if none of its people are in one that was released from before."""
    silo = config.silo
    if silo.dataset in silo.disjoint_from:
        raise ConfigError(f"silo.disjoint_from: {silo.dataset} cannot be disjoint from itself")
    undeclared = sorted(ledger.datasets() - {silo.dataset, *silo.disjoint_from})
    if undeclared:
        names = ", ".join(undeclared)
        raise ConfigError(
            f"silo.dataset: this ledger has releases about {names}, and the same people could be in {silo.dataset}: "
            f"then its budget is not fresh. Keep the old name; only if nobody is in both, add {names} to "
            "silo.disjoint_from"
        )


def settle_terms(config: SiloConfig, ledger: Ledger, decisions: Decisions) -> Terms:
    """Record what is adopted for the first time or tightened; never loosen."""
    dataset, wanted = config.silo.dataset, Terms.of(config)
    adopted = decisions.terms(dataset)
    if adopted is None:
        return _begin(dataset, wanted, ledger, decisions)
    effective = stricter(adopted, wanted)
    if effective != adopted:
        decisions.adopt(dataset, effective, "tightened", _GUARD)
    if looser := differences(effective, wanted):
        _log.warning(
            "silo.toml is looser than what was adopted, which still holds: %s. `silosynth silo adopt` adopts it",
            "; ".join(looser),
        )
    return effective


def _begin(dataset: str, wanted: Terms, ledger: Ledger, decisions: Decisions) -> Terms:
    if ledger.spent(dataset).releases:
        raise LedgerError(
            f"{decisions.path}: the terms adopted for {dataset} are missing though releases were made under them: "
            "restore the file, or state the terms anew with `silosynth silo adopt`"
        )
    decisions.adopt(dataset, wanted, "began", _GUARD)
    return wanted
