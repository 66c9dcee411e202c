"""What silos signed, gathered from every release of the store: receipts once each, and what they add up to."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from silosynth.common.accounting import epsilon
from silosynth.common.errors import SilosynthError
from silosynth.common.events import LabelResponse, PostProcessing, cost, merge
from silosynth.common.heads import Head
from silosynth.common.queries import digest
from silosynth.common.releases import Receipt
from silosynth.server.dashboard.sources import Sources, read_manifest


@dataclass(frozen=True)
class Proven:
    """A receipt, the mechanism that its query names, and the releases that show it."""

    receipt: Receipt
    mechanism: str
    releases: tuple[str, ...]


def proven_by_silo(sources: Sources) -> dict[str, list[Proven]]:
    """Every silo's receipts in the order of its ledger. Withdrawn releases have cost what they cost."""
    found: dict[tuple[str, bytes], Proven] = {}
    for published in reversed(sources.published()):
        for receipt, mechanism in _receipts(sources.manifest_path(published.entry)):
            key = (receipt.silo, receipt.entry_hash)
            known = found.get(key, Proven(receipt, mechanism, ()))
            found[key] = Proven(receipt, mechanism, (*known.releases, published.name))
    by_silo: dict[str, list[Proven]] = {}
    for proven in sorted(found.values(), key=lambda one: (one.receipt.silo, one.receipt.sequence)):
        by_silo.setdefault(proven.receipt.silo, []).append(proven)
    return by_silo


def spent(sources: Sources, proofs: list[Proven], delta: float) -> float | None:
    """Epsilon of all that these receipts were charged for, infinite without noise; None if it is not known yet."""
    events = merge(cost(proven.receipt.event) for proven in proofs)
    return sources.reckoning.ask((events, delta), lambda: epsilon(events, delta))


@lru_cache(maxsize=4096)
def is_signed(noun: Head | Receipt) -> bool:
    try:
        noun.verify()
    except SilosynthError:
        return False
    return True


def in_words(receipt: Receipt) -> str:
    event = cost(receipt.event)
    if isinstance(event, LabelResponse):
        return f"labels only, by randomized response of epsilon {event.epsilon:.4g}"
    words = f"Gaussian noise, multiplier {event.noise_multiplier:.4g}" if event.noise_multiplier else "no noise"
    if event.sampling_probability < 1:
        words += f", on a sample of {event.sampling_probability:.3g}"
    if event.count > 1:
        words += f", {event.count:,} times"
    return words + (", made of earlier entries" if isinstance(receipt.event, PostProcessing) else "")


@lru_cache(maxsize=512)
def _receipts(path: Path) -> list[tuple[Receipt, str]]:
    """Restoring them takes some milliseconds, and what was published never changes."""
    manifest = read_manifest(path)
    mechanisms = {digest(query): query.mechanism for query in manifest.restored_queries()}
    return [(receipt, mechanisms.get(receipt.query_digest, "unknown")) for receipt in manifest.restored_receipts()]
