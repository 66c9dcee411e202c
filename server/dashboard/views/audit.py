"""Audit: how far every silo's ledger has come, and each charged answer that a release shows, link by link."""

from __future__ import annotations

import hashlib
import itertools
from dataclasses import dataclass
from typing import Any

from silosynth.common.heads import Head
from silosynth.common.publication.manifest import head_wire, receipt_wire
from silosynth.common.releases import Receipt
from silosynth.server.dashboard.proofs import Proven, in_words, is_signed, proven_by_silo
from silosynth.server.dashboard.sources import Sources
from silosynth.server.dashboard.tags import Public, View


@dataclass(frozen=True)
class LedgerHead(View):
    silo: Public[str]
    sequence: Public[int]
    hash: Public[str]
    key: Public[str]
    signed: Public[bool]
    shown: Public[int]  # entries that releases show
    words: Public[str]
    sound: Public[bool]


@dataclass(frozen=True)
class LedgerEntry(View):
    silo: Public[str]
    sequence: Public[int]
    created: Public[str]
    mechanism: Public[str]
    event: Public[str]
    query: Public[str]
    previous: Public[str]
    hash: Public[str]
    signed: Public[bool]
    releases: Public[tuple[str, ...]]


@dataclass(frozen=True)
class AuditPage(View):
    heads: tuple[LedgerHead, ...]
    entries: tuple[LedgerEntry, ...]


def audit_page(sources: Sources) -> AuditPage:
    proofs = proven_by_silo(sources)
    entries = [_entry(proven) for silo in sorted(proofs) for proven in reversed(proofs[silo])]
    return AuditPage(tuple(_head(head, proofs.get(head.silo, [])) for head in sources.heads()), tuple(entries))


def audit_export(sources: Sources) -> dict[str, Any]:
    """Heads and receipts as they were signed: whoever has the silos' keys can check them without this server."""
    proofs = proven_by_silo(sources)
    return {
        "heads": [head_wire(head) for head in sources.heads()],
        "receipts": [
            {"receipt": receipt_wire(proven.receipt), "mechanism": proven.mechanism, "releases": proven.releases}
            for silo in sorted(proofs)
            for proven in proofs[silo]
        ],
    }


def _head(head: Head, proofs: list[Proven]) -> LedgerHead:
    receipts = [proven.receipt for proven in proofs if proven.receipt.public_key == head.public_key]
    problem = _broken(head, receipts)
    missing = head.sequence - len(receipts)
    elsewhere = f"; not for releases kept here: {missing:,}" if missing > 0 else ""
    return LedgerHead(
        silo=head.silo,
        sequence=head.sequence,
        hash=head.hash.hex(),
        key=hashlib.sha256(head.public_key).hexdigest(),
        signed=is_signed(head),
        shown=len(receipts),
        words=problem or f"entries shown here: {len(receipts):,}, all signed and linked{elsewhere}",
        sound=not problem,
    )


def _broken(head: Head, receipts: list[Receipt]) -> str:
    """What does not fit together: signatures, links between neighbouring entries, and the head."""
    if not is_signed(head) or not all(map(is_signed, receipts)):
        return "a signature does not hold: ask the silo for its ledger"
    for before, after in itertools.pairwise(receipts):
        if after.sequence == before.sequence + 1 and after.previous_hash != before.entry_hash:
            return f"entry {after.sequence} does not follow entry {before.sequence}: the ledger has two histories"
        if after.sequence == before.sequence:
            return f"there are two entries {after.sequence}: the ledger has two histories"
    if receipts and receipts[-1].sequence > head.sequence:
        return f"a release shows entry {receipts[-1].sequence}, which is after the head that was witnessed"
    if receipts and receipts[-1].sequence == head.sequence and receipts[-1].entry_hash != head.hash:
        return "the newest entry is not the one that was witnessed"
    return ""


def _entry(proven: Proven) -> LedgerEntry:
    receipt = proven.receipt
    return LedgerEntry(
        silo=receipt.silo,
        sequence=receipt.sequence,
        created=receipt.created,
        mechanism=proven.mechanism.replace("_", " "),
        event=in_words(receipt),
        query=receipt.query_digest.hex(),
        previous=receipt.previous_hash.hex(),
        hash=receipt.entry_hash.hex(),
        signed=is_signed(receipt),
        releases=proven.releases,
    )
