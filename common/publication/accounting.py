"""What a release cost each silo: computed from receipts, never typed by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence

from silosynth.common.accounting import epsilon
from silosynth.common.events import cost, of_labels, seen_together
from silosynth.common.publication.manifest import Privacy
from silosynth.common.releases import Receipt

UNIT = "one record, added or removed, per silo"
LABEL_UNIT = "one record's label, replaced, all else about records being public"


def privacy_of(receipts: Sequence[Receipt], delta: float) -> Privacy:
    silos = sorted({receipt.silo for receipt in receipts})
    spent = {silo: epsilon(seen_together(r.event for r in receipts if r.silo == silo), delta) for silo in silos}
    labels = [silo for silo in silos if of_labels(cost(r.event) for r in receipts if r.silo == silo)]
    return Privacy(
        unit=unit_of(silos, labels),
        delta=delta,
        epsilon_by_silo={silo: _finite_or_none(value) for silo, value in spent.items()},
        epsilon_worst=_finite_or_none(max(spent.values(), default=0.0)),
    )


def unit_of(silos: Sequence[str], labels: Sequence[str]) -> str:
    """What is protected, where some of the silos protect labels only."""
    if not labels:
        return UNIT
    return LABEL_UNIT if len(labels) == len(silos) else f"{UNIT}; of {', '.join(labels)} only {LABEL_UNIT}"


def agree(stated: Privacy, proven: Privacy) -> bool:
    """Up to what another version of the accountant may differ by."""
    pairs = [(stated.epsilon_by_silo.get(silo, 0.0), value) for silo, value in proven.epsilon_by_silo.items()]
    silos, unit = stated.epsilon_by_silo.keys() == proven.epsilon_by_silo.keys(), stated.unit == proven.unit
    return silos and unit and all(_close(*pair) for pair in [*pairs, (stated.epsilon_worst, proven.epsilon_worst)])


def in_words(epsilon: float | None) -> str:
    """Rounded up: a privacy loss must not be told smaller than it is."""
    return "infinite (no noise)" if epsilon is None else f"{math.ceil(epsilon * 1000) / 1000:g}"


def _close(stated: float | None, proven: float | None) -> bool:
    if stated is None or proven is None:
        return stated is proven
    return math.isclose(stated, proven, rel_tol=1e-3, abs_tol=1e-6)


def _finite_or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None
