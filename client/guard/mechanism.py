"""The port through which the guard computes: mechanisms plug in here, the guard never imports them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from silosynth.client.guard.entropy import Entropy
from silosynth.common.datasets.records import Records

Report = Callable[[float], None]


@dataclass(frozen=True)
class Bench:
    """What a mechanism works with, beside the query and the records."""

    entropy: Entropy  # for secret sampling coins only
    report: Report  # takes the fraction of work done, in coarse steps
    artifact: Callable[[str], bytes]  # the public file of this SHA-256, in hex, among those the query names
    device: str = "cpu"  # for mechanisms that use torch: `pick_device` understands it


class Mechanism(Protocol):
    """Computes the exact, clipped statistic of a query in units of its plan's grid; the guard adds the noise."""

    def __call__(self, query: Any, records: Records, bench: Bench) -> npt.NDArray[np.int64]: ...


Mechanisms = Mapping[str, Mechanism]
