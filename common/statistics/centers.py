"""Clipping centres of spatial SPS+: one vector of features for each class, as a public file beside a query."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from silosynth.common.errors import QueryError
from silosynth.common.queries import SufficientStatistics

_NUMBER = np.dtype("<f4")


def encode_centers(centers: npt.NDArray[np.float64]) -> bytes:
    return centers.astype(_NUMBER).tobytes()


def decode_centers(content: bytes, query: SufficientStatistics) -> npt.NDArray[np.float64]:
    """(classes, features), or the reason why these bytes are not that."""
    shape = (query.schema.classes, query.dimension)
    if len(content) != shape[0] * shape[1] * _NUMBER.itemsize:
        raise QueryError(f"the query's centres have {len(content)} bytes: not {shape[0]} rows of {shape[1]} numbers")
    centers = np.frombuffer(content, _NUMBER).reshape(shape).astype(np.float64)
    if not np.isfinite(centers).all():
        raise QueryError("the query's centres are not all finite numbers")
    return centers
