"""The port through which the guard computes: mechanisms plug in here, the guard never imports them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from silosynth.client.guard.entropy import Entropy
from silosynth.common.datasets.records import Records
from silosynth.common.errors import QueryError
from silosynth.common.queries import Query

Report = Callable[[float], None]
AskInside = Callable[[Query, Mapping[str, bytes]], npt.NDArray[np.int64]]


def nobody(query: Query, artifacts: Mapping[str, bytes]) -> npt.NDArray[np.int64]:
    raise QueryError("this query asks for one answer and is made of no others")


@dataclass(frozen=True)
class Bench:
    """What a mechanism works with, beside the query and the records."""

    entropy: Entropy  # for secret coins, and for noise that must be in the statistic before it is made
    report: Report  # takes the fraction of work done, in coarse steps
    artifact: Callable[[str], bytes]  # the public file of this SHA-256, in hex, among those the query names
    device: str = "cpu"  # for mechanisms that use torch: `pick_device` understands it
    ask: AskInside = nobody  # noisy integers that answer an inner query, which may name these artifacts, too
    silo: str = ""
    keep: Path | None = None  # a private folder for what is made of records and must not leave
    scratch: Path | None = None  # a folder that outlives a guard that is killed, until the query is answered


class Mechanism(Protocol):
    """Computes the exact, clipped statistic of a query in units of its plan's grid; the guard adds the noise.

    A mechanism of a query with `inner_identities` is shown no records. It asks for noisy answers and makes what is
    released of them.
    """

    def __call__(self, query: Any, records: Records, bench: Bench) -> npt.NDArray[np.int64]: ...


Mechanisms = Mapping[str, Mechanism]
