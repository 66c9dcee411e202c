"""manifest.json: every file of a release with its digest, and what the release cost each silo, from its receipts."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_type_hints

from silosynth.common.accounting import epsilon
from silosynth.common.errors import SilosynthError, VerificationFailed
from silosynth.common.events import SampledGaussian
from silosynth.common.releases import Receipt

MANIFEST = "manifest.json"


def write_manifest(
    folder: Path, classes: Sequence[str], receipts: Sequence[Receipt], delta: float, run: dict[str, Any]
) -> None:
    """The last file to be written: it names all others."""
    entries = {receipt.entry_hash: receipt for receipt in receipts}  # a repeated answer was charged once
    manifest = {
        "version": 1,
        "silosynth": version("silosynth"),
        "run": run,
        "classes": list(classes),
        "privacy": _privacy(list(entries.values()), delta),
        "receipts": [_described(receipt) for receipt in entries.values()],
        "files": _digests(folder),
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")


def verify_release(folder: Path) -> dict[str, Any]:
    """The manifest, once every file has its digest, every receipt its signature and every epsilon its events."""
    manifest = _read(folder / MANIFEST)
    try:
        _verify_files(folder, manifest["files"])
        receipts = [_restored(described) for described in manifest["receipts"]]
        stated = manifest["privacy"]["epsilon_by_silo"]
        spent = _privacy(receipts, manifest["privacy"]["delta"])["epsilon_by_silo"]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise VerificationFailed(f"{folder / MANIFEST} is not a manifest this version can read") from error
    for receipt in receipts:
        receipt.verify()
    if stated.keys() != spent.keys() or any(not _agree(stated[silo], spent[silo]) for silo in spent):
        raise VerificationFailed(f"{folder / MANIFEST}: the epsilon it states is not that of its receipts")
    return manifest


def _read(path: Path) -> dict[str, Any]:
    try:
        manifest: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise VerificationFailed(f"{path} is missing or not JSON: this is not a whole release") from error
    return manifest


def _verify_files(folder: Path, expected: dict[str, Any]) -> None:
    found = _digests(folder)
    for name in sorted(expected.keys() | found.keys()):
        if found.get(name) != expected.get(name):
            state = "is missing" if name not in found else "is not listed" if name not in expected else "was changed"
            raise VerificationFailed(f"{folder}: {name} {state}")


def _agree(stated: float | None, spent: float | None) -> bool:
    """Up to what another version of the accountant may differ by; None is an infinite epsilon."""
    if stated is None or spent is None:
        return stated is spent
    return math.isclose(stated, spent, rel_tol=1e-3, abs_tol=1e-6)


def _privacy(receipts: Sequence[Receipt], delta: float) -> dict[str, Any]:
    """What each silo spent on this release. JSON knows no infinity: where there was no noise, epsilon is null."""
    silos = sorted({receipt.silo for receipt in receipts})
    spent = {silo: epsilon([r.event for r in receipts if r.silo == silo], delta) for silo in silos}
    worst = max(spent.values(), default=0.0)
    return {
        "unit": "one record, added or removed, per silo",
        "delta": delta,
        "epsilon_by_silo": {silo: _finite_or_none(value) for silo, value in spent.items()},
        "epsilon_worst": _finite_or_none(worst),
    }


def _finite_or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _described(receipt: Receipt) -> dict[str, Any]:
    described = {name: value.hex() if isinstance(value, bytes) else value for name, value in vars(receipt).items()}
    return {**described, "event": vars(receipt.event)}


def _restored(described: dict[str, Any]) -> Receipt:
    kinds = get_type_hints(Receipt)
    fields: dict[str, Any] = {
        name: bytes.fromhex(value) if kinds[name] is bytes else value for name, value in described.items()
    }
    try:
        return Receipt(**{**fields, "event": SampledGaussian(**described["event"])})
    except SilosynthError as error:
        raise VerificationFailed(f"a receipt of {described['silo']!r} holds an impossible event") from error


def _digests(folder: Path) -> dict[str, dict[str, Any]]:
    """Digest and size of every file but the manifest itself; a link could change what it points to, so none may be."""
    paths = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*")}
    if links := [name for name, path in paths.items() if path.is_symlink()]:
        raise VerificationFailed(f"{folder}: {links[0]} is a symbolic link")
    return {
        name: {"sha256": _sha256(path), "bytes": path.stat().st_size}
        for name, path in sorted(paths.items())
        if path.is_file() and name != MANIFEST
    }


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
