"""Closing a release folder: the manifest that names every file, and the publisher's signature under it."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from silosynth.common.publication.files import measure
from silosynth.common.publication.manifest import Manifest, head_wire, query_wire, receipt_wire
from silosynth.common.publication.signature import MANIFEST, SIGNATURE, Signature
from silosynth.server.releases.facts import ReleaseFacts


def write_manifest(folder: Path, facts: ReleaseFacts, key: Ed25519PrivateKey) -> Manifest:
    """The last two files to be written."""
    manifest = Manifest(
        release=facts.naming,
        code=facts.code,
        run=facts.run,
        classes=facts.classes,
        shape=facts.schema.shape,
        records=facts.records,
        privacy=facts.privacy,
        queries=tuple(query_wire(query) for query in facts.queries),
        receipts=tuple(receipt_wire(receipt) for receipt in facts.receipts),
        heads=tuple(head_wire(head) for head in facts.proof.heads),
        files=measure(folder),
    )
    content = manifest.to_bytes()
    (folder / MANIFEST).write_bytes(content)
    (folder / SIGNATURE).write_bytes(Signature.of(content, key).to_bytes())
    return manifest
