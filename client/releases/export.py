"""A release as one parquet file: images as Hugging Face and others keep them, tables column by column."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from silosynth.client.releases.dataset import ReleaseDataset, load_dataset
from silosynth.common.errors import ConfigError
from silosynth.common.publication.contents import PICTURES

_ROWS_AT_ONCE = 1024
_TABLE = "data/train.csv"


def export_parquet(folder: Path, target: Path) -> int:
    """Verify the release in `folder` and write `target`; returns the number of rows."""
    try:
        import pyarrow  # noqa: F401 (an extra: told before anything is done)
    except ModuleNotFoundError as error:
        raise ConfigError("exports to parquet need pyarrow: pip install 'silosynth[parquet]'") from error
    if target.exists():
        raise ConfigError(f"{target} exists already and is not overwritten: choose another file")
    release = load_dataset(folder, None, None)
    if (folder / _TABLE).exists():
        _export_table(folder / _TABLE, release, target)
    else:
        _export_images(folder, release, target)
    return len(release)


def _export_table(source: Path, release: ReleaseDataset, target: Path) -> None:
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet as pq

    table = pyarrow.csv.read_csv(source)
    if release.soft_labels is not None:
        table = table.append_column("soft_labels", pa.array(list(release.soft_labels.numpy())))
    pq.write_table(table.replace_schema_metadata(_origin(release)), target)


def _export_images(folder: Path, release: ReleaseDataset, target: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pictures = _pictures(folder, release)
    schema = pa.schema(_fields(pa, release, pictures), metadata=_metadata(release, pictures))
    with pq.ParquetWriter(target, schema) as writer:
        for columns in _batches(release, pictures):
            writer.write_batch(pa.record_batch(columns, schema=schema))


def _fields(pa: Any, release: ReleaseDataset, pictures: list[Path] | None) -> list[Any]:
    if pictures is not None:
        fields = [pa.field("image", pa.struct([("bytes", pa.binary()), ("path", pa.string())]))]
    else:
        fields = [pa.field("features", pa.list_(pa.uint8()))]
    fields.append(pa.field("label", pa.int64()))
    if release.soft_labels is not None:
        fields.append(pa.field("soft_labels", pa.list_(pa.float32())))
    return fields


def _origin(release: ReleaseDataset) -> dict[str, str]:
    return {"silosynth": str(release.manifest.release)}


def _metadata(release: ReleaseDataset, pictures: list[Path] | None) -> dict[str, str]:
    """Where it came from; and what the columns mean to Hugging Face's datasets."""
    if pictures is None:
        return _origin(release)
    features: dict[str, Any] = {
        "image": {"_type": "Image"},
        "label": {"names": list(release.classes), "_type": "ClassLabel"},
    }
    if release.soft_labels is not None:
        features["soft_labels"] = {"feature": {"dtype": "float32", "_type": "Value"}, "_type": "List"}
    return {**_origin(release), "huggingface": json.dumps({"info": {"features": features}})}


def _batches(release: ReleaseDataset, pictures: list[Path] | None) -> Iterator[dict[str, Any]]:
    for start in range(0, len(release), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        columns: dict[str, Any] = {}
        if pictures is not None:
            columns["image"] = [{"bytes": path.read_bytes(), "path": path.name} for path in pictures[rows]]
        else:
            columns["features"] = list(release.features[rows].flatten(1).numpy())
        columns["label"] = release.labels[rows].numpy()
        if release.soft_labels is not None:
            columns["soft_labels"] = list(release.soft_labels[rows].numpy())
        yield columns


def _pictures(folder: Path, release: ReleaseDataset) -> list[Path] | None:
    """The picture of every record, in the records' order; None where a release has none."""
    if not (folder / PICTURES).is_dir():
        return None
    labels = release.labels.numpy()
    folders = {int(re.split("[^0-9]", path.name)[0]): path for path in (folder / PICTURES).iterdir()}
    return [
        folders[label] / f"{number:06}.png" for label, number in zip(labels, _numbers_in_class(labels), strict=True)
    ]


def _numbers_in_class(labels: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """1 for the first record of its class, 2 for the second..."""
    order = np.argsort(labels, kind="stable")
    sizes = np.bincount(labels)
    numbers = np.empty_like(labels)
    numbers[order] = np.arange(len(labels)) - np.repeat(np.cumsum(sizes) - sizes, sizes) + 1
    return numbers
