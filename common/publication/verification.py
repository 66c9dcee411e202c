"""Is a release what it claims to be? Signature, every file, every receipt, every ledger head, every epsilon."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from silosynth.common.errors import VerificationFailed
from silosynth.common.events import cost
from silosynth.common.heads import Head
from silosynth.common.publication.accounting import agree, privacy_of
from silosynth.common.publication.files import FileFacts, measure
from silosynth.common.publication.manifest import Manifest
from silosynth.common.publication.signature import MANIFEST, SIGNATURE, Signature
from silosynth.common.queries import digest
from silosynth.common.releases import Receipt, entry_hash


def verify_release(folder: Path, publisher: str | None = None) -> Manifest:
    """The manifest, once everything in the folder has been found to be as it says.

    `publisher` is the public key, in hexadecimal, that must have signed it.
    """
    manifest = read_signed_manifest(_read(folder, MANIFEST), _read(folder, SIGNATURE), publisher)
    _verify_files(folder, manifest.files)
    verify_cost(manifest)
    return manifest


def read_signed_manifest(manifest: bytes, signature: bytes, publisher: str | None = None) -> Manifest:
    Signature.from_bytes(signature).verify(manifest, publisher)
    return Manifest.from_bytes(manifest)


def verify_cost(manifest: Manifest) -> None:
    """Silos sign receipts, receipts name queries, queries determine events, events determine epsilon."""
    receipts = manifest.restored_receipts()
    asked = {digest(query): query.event() for query in manifest.restored_queries()}
    for receipt in receipts:
        receipt.verify()
        _require(_links(receipt), f"the ledger entry of {receipt.silo!r} does not hash")
        _require(receipt.query_digest in asked, f"{receipt.silo!r} answered a query that is not listed")
        charged_right = cost(receipt.event) == asked[receipt.query_digest]
        _require(charged_right, f"{receipt.silo!r} was charged as another event than its query's")
    _verify_heads(manifest.restored_heads(), receipts)
    proven = privacy_of(receipts, manifest.privacy.delta)
    _require(agree(manifest.privacy, proven), "the epsilon it states is not that of its receipts")


def _verify_files(folder: Path, expected: dict[str, FileFacts]) -> None:
    found = measure(folder)
    for name in sorted(expected.keys() | found.keys()):
        if found.get(name) != expected.get(name):
            state = "is missing" if name not in found else "is not listed" if name not in expected else "was changed"
            raise VerificationFailed(f"{folder}: {name} {state}")


def _verify_heads(heads: Sequence[Head], receipts: Sequence[Receipt]) -> None:
    """Every ledger that answered shows a signed head at or after its last answer."""
    newest = {(head.silo, head.public_key): head for head in heads}
    for head in heads:
        head.verify()
    for receipt in receipts:
        covering = newest.get((receipt.silo, receipt.public_key))
        covered = covering is not None and (
            covering.sequence > receipt.sequence
            or (covering.sequence, covering.hash) == (receipt.sequence, receipt.entry_hash)
        )
        _require(covered, f"no head of the ledger of {receipt.silo!r} covers its receipt")


def _links(receipt: Receipt) -> bool:
    event = receipt.event.to_proto().SerializeToString(deterministic=True)
    fields = (receipt.dataset, receipt.query_digest, event, receipt.payload_digest, receipt.created)
    return entry_hash(receipt.previous_hash, receipt.sequence, *fields) == receipt.entry_hash


def _require(condition: bool, complaint: str) -> None:
    if not condition:
        raise VerificationFailed(f"{MANIFEST}: {complaint}")


def _read(folder: Path, name: str) -> bytes:
    try:
        return (folder / name).read_bytes()
    except OSError as error:
        raise VerificationFailed(f"{folder}: {name} is missing or unreadable: this is not a whole release") from error
