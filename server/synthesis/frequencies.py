"""Records by frequency: an orthonormal cosine transform, under which white noise stays white and images are sparse."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.fft import dctn, idctn

from silosynth.common.schema import Schema

Array = npt.NDArray[np.float64]


def to_frequencies(rows: Array, schema: Schema) -> Array:
    """Every row, a flat record, as its coefficients. Columns of a table have no neighbours: tables stay as they are."""
    if not schema.is_image:
        return rows
    return np.asarray(dctn(rows.reshape(-1, *schema.shape), axes=(1, 2), norm="ortho")).reshape(rows.shape)


def from_frequencies(coefficients: Array, schema: Schema) -> Array:
    if not schema.is_image:
        return coefficients
    images = idctn(coefficients.reshape(-1, *schema.shape), axes=(1, 2), norm="ortho")
    return np.asarray(images).reshape(coefficients.shape)


def band_means(values: Array, schema: Schema) -> Array:
    """One value per coefficient, replaced by the mean over its band, which is far less noisy.

    A band is a diagonal of the transform, all channels together; a table is one band.
    """
    bands = _bands(schema)
    return np.asarray((np.bincount(bands, values) / np.bincount(bands))[bands])


def _bands(schema: Schema) -> npt.NDArray[np.int64]:
    if not schema.is_image:
        return np.zeros(schema.dimension, dtype=np.int64)
    height, width, channels = schema.shape
    diagonals = np.add.outer(np.arange(height), np.arange(width))
    return np.repeat(diagonals.reshape(-1), channels)
