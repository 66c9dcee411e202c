"""The port through which the guard computes: mechanisms plug in here, the guard never imports them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from silosynth.client.guard.entropy import Entropy
from silosynth.common.datasets.records import Records

Report = Callable[[float], None]


class Mechanism(Protocol):
    """Computes the exact, clipped statistic of a query in units of its plan's grid; the guard adds the noise.

    `entropy` is for secret sampling coins only. `report` takes the fraction of work done, in coarse steps.
    """

    def __call__(self, query: Any, records: Records, entropy: Entropy, report: Report) -> npt.NDArray[np.int64]: ...


Mechanisms = Mapping[str, Mechanism]
