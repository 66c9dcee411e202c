"""From estimated differences from a centre to values in [-1, 1]."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from silosynth.common.schema import Schema

Array = npt.NDArray[np.float64]

_CUT_SHARE = 0.02


def in_box(rows: Array, center: float, schema: Schema) -> Array:
    """center + rows, cut to [-1, 1].

    Images all get the one contrast with which a fiftieth of their values leaves the box: clipping has dimmed them by a
    factor nobody knows, and noise may reach far beyond the box. A table's values keep their size.
    """
    contrast = _filling_contrast(rows, center) if schema.is_image else 1.0
    return np.clip(center + contrast * rows, -1, 1)


def _filling_contrast(rows: Array, center: float) -> float:
    room = np.where(rows > 0, 1 - center, 1 + center)
    return float(np.quantile(room / np.maximum(np.abs(rows), 1e-9), _CUT_SHARE))
