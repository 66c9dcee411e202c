"""Public records as artifacts: those behind the projection of features (SER), and candidates that silos vote for.

Auxiliary records are drawn by procedure, public, or released earlier. An artifact is a safetensors file of one tensor,
`records`: uint8 images (count, height, width, channels) or float32 rows (count, columns) in [-1, 1]. A guard reads it
from a server it does not trust.
"""

from __future__ import annotations

import zipfile
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import safetensors.numpy
import torch
import torch.nn.functional as F
from safetensors import SafetensorError

from silosynth.common.datasets.records import Features, to_bytes_range, to_unit_range
from silosynth.common.errors import ConfigError, QueryError
from silosynth.common.procedural import procedural_batches
from silosynth.common.schema import Schema

_PROCEDURAL_SEED, _PROCEDURAL_COUNT = 500, 1000  # the count is the paper's
_SMALLEST_PAINTED_SIDE = 8
_MOST_RECORDS = 10_000


def encode_records(records: npt.NDArray[np.uint8] | Features) -> bytes:
    content: bytes = safetensors.numpy.save({"records": np.ascontiguousarray(records)})
    return content


def auxiliary_of_release(file: Path) -> bytes:
    """The artifact of a release's train.npz, at most as many records as a guard takes, evenly chosen."""
    try:
        with np.load(file, allow_pickle=False) as arrays:
            records = arrays["images" if "images" in arrays else "features"]
    except (EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise ConfigError(f"{file}: is no release's train.npz, which holds images or features") from error
    return encode_records(records[:: -(-len(records) // _MOST_RECORDS) or 1])


def decode_auxiliary(content: bytes, schema: Schema) -> Features:
    return decode_records(content, schema, "auxiliary records", 2, _MOST_RECORDS)


def decode_records(content: bytes, schema: Schema, what: str, fewest: int, most: int) -> Features:
    """Flat float32 records in [-1, 1]."""
    try:
        records = safetensors.numpy.load(content).get("records")
    except (SafetensorError, KeyError, ValueError) as error:
        raise QueryError(f"the artifact of {what} is no safetensors file: ask the server's operator") from error
    expected = np.uint8 if schema.is_image else np.float32
    if records is None or records.dtype != expected or records.shape[1:] != schema.shape:
        raise QueryError(f"the artifact of {what} holds no {np.dtype(expected)} records of shape {schema.shape}")
    if not fewest <= len(records) <= most:
        raise QueryError(f"{len(records)} {what} are not between {fewest} and {most}")
    if not np.isfinite(records).all():
        raise QueryError(f"some {what} hold NaN or infinite values")
    return to_unit_range(records.reshape(len(records), -1))


@lru_cache(maxsize=4)
def procedural_auxiliary(schema: Schema) -> Features:
    """Flat images of the schema's shape, in 8 bits: what two machines compute a little differently is rounded away."""
    images = procedural_images(schema, _PROCEDURAL_COUNT, _PROCEDURAL_SEED)
    pixels = to_bytes_range(images.permute(0, 2, 3, 1).numpy())
    return to_unit_range(pixels.reshape(len(pixels), -1))


def procedural_images(schema: Schema, count: int, seed: int, number: int = 0) -> torch.Tensor:
    """The so-many-th batch of a seed's, as networks take them."""
    height, width, channels = schema.shape
    painted_channels = channels if channels in (1, 3) else 1
    side = max(height, width, _SMALLEST_PAINTED_SIDE)
    images, _ = next(procedural_batches(seed, count, painted_channels, side, start=number))
    return F.interpolate(images, (height, width), mode="bilinear").expand(-1, channels, -1, -1)


def as_inputs(features: Features, schema: Schema) -> torch.Tensor:
    """Flat records as networks take them: images (count, channels, height, width), rows as they are."""
    rows = torch.from_numpy(features)
    return rows.reshape(-1, *schema.shape).permute(0, 3, 1, 2).contiguous() if schema.is_image else rows
