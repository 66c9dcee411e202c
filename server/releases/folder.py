"""The release folder: what a run hands to the world. It loads without our code.

data/train/<class>/000001.png   images, as torchvision's ImageFolder and Hugging Face's imagefolder expect them
data/train.npz                  images uint8 NHWC (or features of a table), labels, perhaps soft_labels; no pickle
models/<name>.safetensors       where a recipe makes models
contact-sheet.png  evaluation.json  manifest.json
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from silosynth.common.accounting import epsilon
from silosynth.common.datasets.records import to_bytes_range
from silosynth.common.errors import ConfigError, VerificationFailed
from silosynth.common.releases import Receipt
from silosynth.common.schema import Schema
from silosynth.server.evaluation import Evaluation
from silosynth.server.recipes.base import Product
from silosynth.server.releases.contact_sheet import contact_sheet, to_picture

_MANIFEST = "manifest.json"


def write_release(
    path: Path,
    product: Product,
    schema: Schema,
    class_names: Sequence[str],
    evaluation: Evaluation | None,
    receipts: Sequence[Receipt],
    delta: float,
    run: dict[str, Any],
) -> Path:
    """Write the folder beside its final place and move it there whole: a release is complete or absent."""
    if path.exists():
        raise ConfigError(f"{path} exists already: a release is never overwritten, choose another folder")
    scratch = path.with_name(f".{path.name}.unfinished")
    shutil.rmtree(scratch, ignore_errors=True)
    names = list(class_names) or [str(label) for label in range(schema.classes)]
    _write_data(scratch / "data", product, schema, names)
    if schema.is_image:
        contact_sheet(to_bytes_range(product.features), product.labels, names).save(scratch / "contact-sheet.png")
    for name, tensors in product.models.items():
        (scratch / "models").mkdir(exist_ok=True)
        save_file(dict(tensors), scratch / "models" / f"{name}.safetensors")
    if evaluation is not None:
        (scratch / "evaluation.json").write_text(evaluation.model_dump_json(indent=2) + "\n")
    manifest = {
        "silosynth": version("silosynth"),
        "run": run,
        "classes": names,
        "privacy": _privacy(receipts, delta),
        "receipts": [_described(receipt) for receipt in receipts],
        "files": _digests(scratch),
    }
    (scratch / _MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")
    _sync(scratch)
    return scratch.rename(path)


def verify_release(path: Path) -> dict[str, Any]:
    """Check every file against the manifest and return it; VerificationFailed names the first file that differs."""
    try:
        manifest: dict[str, Any] = json.loads((path / _MANIFEST).read_text())
        expected = manifest["files"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise VerificationFailed(f"{path / _MANIFEST} is missing or not a manifest") from error
    found = _digests(path)
    for name in sorted(expected.keys() | found.keys()):
        if found.get(name) != expected.get(name):
            state = "is missing" if name not in found else "is not listed" if name not in expected else "was changed"
            raise VerificationFailed(f"{path}: {name} {state}")
    return manifest


def _write_data(folder: Path, product: Product, schema: Schema, names: Sequence[str]) -> None:
    folder.mkdir(parents=True)
    arrays: dict[str, Any] = {"labels": product.labels.astype(np.int64)}
    if product.soft_labels is not None:
        arrays["soft_labels"] = product.soft_labels
    if schema.is_image:
        arrays["images"] = to_bytes_range(product.features)
        _write_pictures(folder / "train", arrays["images"], product.labels, names)
    else:
        arrays["features"] = product.features
    np.savez_compressed(folder / "train.npz", **arrays)


def _write_pictures(folder: Path, images: Any, labels: Any, names: Sequence[str]) -> None:
    for label, name in enumerate(names):
        (folder / name).mkdir(parents=True)
        for number, index in enumerate(np.flatnonzero(labels == label), start=1):
            to_picture(images[index]).save(folder / name / f"{number:06}.png")


def _privacy(receipts: Sequence[Receipt], delta: float) -> dict[str, Any]:
    """What each silo spent on this release, computed from its receipts."""
    silos = sorted({receipt.silo for receipt in receipts})
    spent = {silo: epsilon([r.event for r in receipts if r.silo == silo], delta) for silo in silos}
    return {
        "unit": "one record, added or removed, per silo",
        "delta": delta,
        "epsilon_by_silo": spent,
        "epsilon_worst": max(spent.values(), default=0.0),
    }


def _described(receipt: Receipt) -> dict[str, Any]:
    described = {name: value.hex() if isinstance(value, bytes) else value for name, value in vars(receipt).items()}
    return {**described, "event": vars(receipt.event)}


def _digests(folder: Path) -> dict[str, dict[str, Any]]:
    """Digest and size of every file but the manifest itself."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): {"sha256": _sha256(path), "bytes": path.stat().st_size}
        for path in files
        if path != folder / _MANIFEST
    }


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(folder: Path) -> None:
    for path in [folder, *folder.rglob("*")]:
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
