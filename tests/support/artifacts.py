"""A public file, queries that name it and a mechanism that reads it."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from silosynth.client.guard.mechanism import Bench
from silosynth.client.mechanisms.class_counts import class_counts
from silosynth.common.datasets.records import Records
from silosynth.common.queries import ClassCounts

CONTENT = np.random.default_rng(0).bytes(5 << 20)
ARTIFACT = hashlib.sha256(CONTENT).hexdigest()


def naming(
    monkeypatch: pytest.MonkeyPatch, artifacts: tuple[str, ...] = (ARTIFACT,), backbones: tuple[str, ...] = ()
) -> None:
    """Let every query for class counts name these, as queries that need files do."""
    monkeypatch.setattr(ClassCounts, "artifacts", lambda self: artifacts)
    monkeypatch.setattr(ClassCounts, "backbones", lambda self: backbones)


class ReadingMechanism:
    """Class counts, for which all artifacts of the query are read first."""

    def __init__(self) -> None:
        self.read: list[bytes] = []
        self.devices: list[str] = []

    def __call__(self, query: Any, records: Records, bench: Bench) -> npt.NDArray[np.int64]:
        self.read += [bench.artifact(artifact) for artifact in query.artifacts()]
        self.devices.append(bench.device)
        return class_counts(query, records, bench)
