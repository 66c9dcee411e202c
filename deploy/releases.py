"""What `silosynth release` shows: releases of a catalog or of a shelf, as plain documents."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from rich.table import Table

from silosynth.client.releases.access import Access
from silosynth.client.releases.catalog import Catalog
from silosynth.client.releases.shelf import Shelf
from silosynth.common.publication.manifest import Manifest
from silosynth.common.publication.names import ReleaseName
from silosynth.common.publication.signature import MANIFEST
from silosynth.protos.v1 import catalog_pb2

Document = dict[str, Any]


def in_catalog(access: Path) -> list[Document]:
    return [_listed(entry) for entry in Catalog(Access.from_file(access)).releases()]


def on_shelf(shelf: Shelf) -> list[Document]:
    return [_kept(shelf, release) for release in shelf.releases()]


def shown(access: Path, name: str) -> Document:
    details = Catalog(Access.from_file(access)).describe(ReleaseName.parse(name))
    return {**_listed(details.entry), "readme": details.readme, "privacy_card": details.privacy_card}


def shown_on_shelf(shelf: Shelf, name: str) -> Document:
    release = ReleaseName.parse(name)
    folder = shelf.find(release)
    texts = {"readme": "README.md", "privacy_card": "privacy-card.yaml"}
    return {**_kept(shelf, release), **{key: (folder / file).read_text() for key, file in texts.items()}}


def as_table(found: list[Document]) -> Table:
    table = Table("release", "created", "recipe", "records", "epsilon", "delta", "state")
    for document in found:
        epsilon = "infinite" if document["epsilon"] is None else f"{document['epsilon']:.4g}"
        state = "" if document["withdrawn"] is None else f"withdrawn: {document['withdrawn']}"
        cells = (document["created"], document["recipe"], str(document["records"]), epsilon)
        table.add_row(document["release"], *cells, f"{document['delta']:g}", state)
    return table


def _listed(entry: catalog_pb2.CatalogEntry) -> Document:
    return {
        "release": str(ReleaseName(entry.name, entry.version)),
        "created": entry.created,
        "sha256": entry.sha256,
        "bytes": entry.size,
        "recipe": entry.recipe,
        "records": entry.records,
        "epsilon": entry.epsilon if math.isfinite(entry.epsilon) else None,
        "delta": entry.delta,
        "accuracy": entry.accuracy if entry.HasField("accuracy") else None,
        "parent": entry.parent or None,
        "withdrawn": entry.withdrawn if entry.HasField("withdrawn") else None,
    }


def _kept(shelf: Shelf, release: ReleaseName) -> Document:
    manifest = Manifest.from_bytes((shelf.place(release) / MANIFEST).read_bytes())
    return {
        "release": str(release),
        "folder": str(shelf.place(release)),
        "created": manifest.release.created,
        "recipe": manifest.run.recipe,
        "records": manifest.records,
        "epsilon": manifest.privacy.epsilon_worst,
        "delta": manifest.privacy.delta,
        "withdrawn": shelf.withdrawn(release),
    }
