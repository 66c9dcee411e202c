"""Records that notice when somebody looks at them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from silosynth.common.datasets.records import Records


class SpyRecords(Records):
    """Every look at a feature, a label or the number of records is counted in `looks`. The schema is public."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "looks", 0)
        super().__post_init__()
        object.__setattr__(self, "looks", 0)

    @classmethod
    def of(cls, records: Records) -> SpyRecords:
        return cls(records.features, records.labels, records.schema)

    def __getattribute__(self, name: str) -> Any:
        if name in ("features", "labels"):
            object.__setattr__(self, "looks", object.__getattribute__(self, "looks") + 1)
        return super().__getattribute__(name)

    def take(self, indices: npt.NDArray[np.int64]) -> Records:
        """None of them is no look."""
        if not len(indices):
            shape = (0, *self.schema.shape)
            return Records(np.zeros(shape, dtype=np.float32), np.zeros(0, dtype=np.int64), self.schema)
        return super().take(indices)
