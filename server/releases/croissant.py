"""croissant.json: the release described for machines, in MLCommons' Croissant format 1.0."""

from __future__ import annotations

import json
from typing import Any

from silosynth.common.publication.files import FileFacts
from silosynth.server.releases.facts import ReleaseFacts
from silosynth.server.releases.table_file import TABLE, TableFile

_CR = (
    *("citeAs", "column", "equivalentProperty", "extract", "field", "fileProperty", "fileObject", "fileSet", "format"),
    *("includes", "isLiveDataset", "jsonPath", "key", "md5", "parentField", "path", "recordSet", "references", "regex"),
    *("repeated", "replace", "samplingRate", "separator", "source", "subField", "transform"),
)
_CONTEXT = {  # as the format's specification prescribes it
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    **{term: f"cr:{term}" for term in _CR},
}
_PICTURES = "data/train/*/*.png"
_BY_ENDING = {".csv": "text/csv", ".npz": "application/x-npz", ".safetensors": "application/x-safetensors"}


def croissant(facts: ReleaseFacts, files: dict[str, FileFacts], *, pictures: bool) -> str:
    """`files` are those written so far: arrays and models are described one by one, images as a set."""
    naming, words = facts.naming, facts.words
    document: dict[str, Any] = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": f"{naming.name}-{naming.version}",
        "description": words.description,
        "version": f"{naming.version}.0.0",
        "datePublished": facts.day,
        "creator": [{"@type": "sc:Organization", "name": name} for name in words.curators or facts.silos],
        "keywords": ["synthetic data", "differential privacy", "federated"],
        "isAccessibleForFree": True,
        "distribution": [_file(name, files[name]) for name in sorted(files) if _ending(name) in _BY_ENDING],
    }
    if words.license is not None:
        document["license"] = words.license
    if pictures:
        document["distribution"].append(
            {"@type": "cr:FileSet", "@id": "pictures", "encodingFormat": "image/png", "includes": _PICTURES}
        )
    if fields := _picture_fields() if pictures else _columns(facts.table_file):
        document["recordSet"] = [{"@type": "cr:RecordSet", "@id": "train", "field": fields}]
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _file(name: str, facts: FileFacts) -> dict[str, Any]:
    return {
        "@type": "cr:FileObject",
        "@id": name,
        "contentUrl": name,
        "contentSize": f"{facts.bytes} B",
        "encodingFormat": _BY_ENDING[_ending(name)],
        "sha256": facts.sha256,
    }


def _picture_fields() -> list[dict[str, Any]]:
    """A picture's class is the number its folder's name begins with."""
    pictures = {"fileSet": {"@id": "pictures"}}
    label = {"extract": {"fileProperty": "fullpath"}, "transform": {"regex": "data/train/([0-9]+)[^/]*/"}}
    return [
        _field("image", "sc:ImageObject", {**pictures, "extract": {"fileProperty": "content"}}),
        _field("label", "sc:Integer", {**pictures, **label}),
    ]


def _columns(table: TableFile | None) -> list[dict[str, Any]]:
    if table is None:
        return []
    kinds = {column.name: "sc:Text" if column.bounds is None else "sc:Float" for column in table.features}
    return [
        _field(name, kind, {"fileObject": {"@id": TABLE}, "extract": {"column": name}})
        for name, kind in (*kinds.items(), (table.label, "sc:Text"))
    ]


def _field(name: str, kind: str, source: dict[str, Any]) -> dict[str, Any]:
    return {"@type": "cr:Field", "@id": f"train/{name}", "dataType": kind, "source": source}


def _ending(name: str) -> str:
    return f".{name.rpartition('.')[2]}"
