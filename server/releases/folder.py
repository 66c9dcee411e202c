"""The release folder: what a run hands to the world. It loads without our code.

data/train/<class>/000001.png   images, as torchvision's ImageFolder and Hugging Face's imagefolder expect them
data/train.npz                  images uint8 NHWC (or features of a table), labels, perhaps soft_labels; no pickle
models/<name>.safetensors       where a recipe makes models
contact-sheet.png  evaluation.json  manifest.json
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from silosynth.common.datasets.records import Records
from silosynth.common.errors import ConfigError
from silosynth.common.releases import Receipt
from silosynth.common.schema import Schema
from silosynth.server.evaluation import Evaluation
from silosynth.server.recipes.base import Product
from silosynth.server.releases.contact_sheet import contact_sheet, to_picture
from silosynth.server.releases.manifest import write_manifest

_PICTURE_CHANNELS = (1, 3)


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
    if class_names and len(class_names) != schema.classes:
        raise ConfigError(f"{len(class_names)} class names are given for {schema.classes} classes: name all or none")
    names = list(class_names) or [str(label) for label in range(schema.classes)]
    unfinished = path.with_name(f".{path.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    (unfinished / "data").mkdir(parents=True)
    records = product.records(schema)
    _write_arrays(unfinished / "data/train.npz", records, product)
    if schema.is_image and schema.shape[2] in _PICTURE_CHANNELS:
        _write_pictures(unfinished / "data/train", records, names)
        contact_sheet(records.features, records.labels, names).save(unfinished / "contact-sheet.png")
    _write_models(unfinished / "models", product)
    if evaluation is not None:
        (unfinished / "evaluation.json").write_text(evaluation.model_dump_json(indent=2) + "\n")
    write_manifest(unfinished, names, receipts, delta, run)
    for written in [*unfinished.rglob("*"), unfinished]:
        _sync(written)
    unfinished.rename(path)
    _sync(path.parent)
    return path


def _write_arrays(path: Path, records: Records, product: Product) -> None:
    arrays: dict[str, Any] = {
        "images" if records.schema.is_image else "features": records.features,
        "labels": records.labels.astype(np.int64),
    }
    if product.soft_labels is not None:
        arrays["soft_labels"] = product.soft_labels.astype(np.float32)
    np.savez_compressed(path, **arrays)


def _write_pictures(folder: Path, records: Records, names: Sequence[str]) -> None:
    for label, name in enumerate(_folder_names(names)):
        (folder / name).mkdir(parents=True)
        for number, image in enumerate(records.features[records.labels == label], start=1):
            to_picture(image).save(folder / name / f"{number:06}.png")


def _folder_names(names: Sequence[str]) -> list[str]:
    """Loaders number classes by the order of their folders' names, so each begins with its number, zeros in front."""
    digits = len(str(len(names) - 1))
    plain = [re.sub(r"[^0-9A-Za-z]+", "-", name).strip("-").lower() for name in names]
    return [
        f"{label:0{digits}}" + (f"-{word}" if word not in ("", str(label)) else "") for label, word in enumerate(plain)
    ]


def _write_models(folder: Path, product: Product) -> None:
    for name, tensors in product.models.items():
        folder.mkdir(exist_ok=True)
        contiguous = {key: np.ascontiguousarray(tensor) for key, tensor in tensors.items()}
        save_file(contiguous, folder / f"{name}.safetensors")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
