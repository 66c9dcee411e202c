"""Records that make it as easy as can be to tell whether they took part."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.fft import idct
from scipy.linalg import hadamard

from silosynth.common.datasets.records import Records
from silosynth.common.queries import Query


def canaries(query: Query, most: int) -> Records:
    """As long as a record can be about the query's centre, orthogonal within each class: sums keep them apart."""
    schema = query.schema
    center = float(getattr(query, "center", 0.0))
    patterns = _patterns(schema.dimension)
    count = min(most, schema.classes * len(patterns))
    numbers = np.arange(count)
    features = center + (1 - abs(center)) * patterns[numbers // schema.classes]
    return Records(features.astype(np.float32).reshape(-1, *schema.shape), numbers % schema.classes, schema)


def _patterns(dimension: int) -> npt.NDArray[np.float64]:
    """Orthogonal rows whose largest value is 1."""
    if dimension & (dimension - 1) == 0:
        return np.asarray(hadamard(dimension), dtype=np.float64)
    waves = np.asarray(idct(np.eye(dimension), norm="ortho", axis=1), dtype=np.float64)
    return np.asarray(waves / np.abs(waves).max(axis=1, keepdims=True))
