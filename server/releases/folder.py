"""The release folder: what a run hands to the world. It loads without our code.

README.md                       dataset card: picture, accuracy, cost
privacy-card.yaml               for lawyers and registries; croissant.json for machines
data/train/<class>/000001.png   images, as torchvision's ImageFolder and Hugging Face's imagefolder expect them
data/train.csv                  tables: rows in the units and words of their columns
data/train.npz                  images uint8 NHWC (or features of a table), labels, perhaps soft_labels; no pickle
models/<name>.safetensors       where a recipe makes models
evaluation.json  .png  .svg     where public test data were named
contact-sheet.png  manifest.json  manifest.json.sig
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from safetensors.numpy import save_file

from silosynth.common.errors import ConfigError
from silosynth.common.publication.contents import ARRAYS, PICTURES, write_arrays, write_pictures
from silosynth.common.publication.files import measure
from silosynth.common.schema import Schema
from silosynth.server.config import SchemaSettings
from silosynth.server.evaluation.plots import PICTURE, plot_evaluation
from silosynth.server.recipes.base import Product
from silosynth.server.releases.contact_sheet import contact_sheet
from silosynth.server.releases.croissant import croissant
from silosynth.server.releases.dataset_card import CONTACT_SHEET, dataset_card
from silosynth.server.releases.durable import sync
from silosynth.server.releases.facts import ReleaseFacts
from silosynth.server.releases.manifest import write_manifest
from silosynth.server.releases.privacy_card import privacy_card
from silosynth.server.releases.table_file import TABLE

_PICTURE_CHANNELS = (1, 3)


def class_names(settings: SchemaSettings) -> tuple[str, ...]:
    given = settings.class_names if settings.table is None else settings.table.label_column.words
    if given and len(given) != settings.classes:
        raise ConfigError(f"{len(given)} class names are given for {settings.classes} classes: name all or none")
    return tuple(given) or tuple(str(label) for label in range(settings.classes))


def write_release(path: Path, product: Product, facts: ReleaseFacts, key: Ed25519PrivateKey) -> Path:
    """Write the folder beside its final place and move it there whole: a release is complete or absent."""
    if path.exists():
        raise ConfigError(f"{path} exists already: a release is never overwritten, choose another folder")
    unfinished = path.with_name(f".{path.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    (unfinished / "data").mkdir(parents=True)
    _write_data(unfinished, product, facts)
    _write_documents(unfinished, product, facts)
    write_manifest(unfinished, facts, key)
    for written in [*unfinished.rglob("*"), unfinished]:
        sync(written)
    unfinished.rename(path)
    sync(path.parent)
    return path


def _write_data(folder: Path, product: Product, facts: ReleaseFacts) -> None:
    records = product.records(facts.schema)
    kind = "images" if facts.schema.is_image else "features"
    write_arrays(folder / ARRAYS, kind, records.features, records.labels, product.soft_labels)
    if has_pictures(facts.schema):
        write_pictures(folder / PICTURES, records.features, records.labels, facts.classes)
        contact_sheet(records.features, records.labels, facts.classes).save(folder / CONTACT_SHEET)
    if facts.table_file is not None:
        facts.table_file.write(folder / TABLE, records)
    _write_models(folder / "models", product)


def _write_documents(folder: Path, product: Product, facts: ReleaseFacts) -> None:
    pictures, soft_labels = has_pictures(facts.schema), product.soft_labels is not None
    if facts.evaluation is not None:
        (folder / "evaluation.json").write_text(facts.evaluation.model_dump_json(indent=2) + "\n")
        plot_evaluation(facts.evaluation, facts.classes, folder / PICTURE)
    (folder / "croissant.json").write_text(croissant(facts, measure(folder), pictures=pictures))
    (folder / "README.md").write_text(dataset_card(facts, pictures=pictures, soft_labels=soft_labels))
    (folder / "privacy-card.yaml").write_text(privacy_card(facts).to_yaml())


def has_pictures(schema: Schema) -> bool:
    return schema.is_image and schema.shape[2] in _PICTURE_CHANNELS


def _write_models(folder: Path, product: Product) -> None:
    for name, tensors in product.models.items():
        folder.mkdir(exist_ok=True)
        contiguous = {key: np.ascontiguousarray(tensor) for key, tensor in tensors.items()}
        save_file(contiguous, folder / f"{name}.safetensors")
