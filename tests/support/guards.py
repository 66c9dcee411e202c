"""A silo in a temporary folder: records nobody would mind losing, a policy that allows, a ledger, a guard."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from silosynth.client.config import SiloConfig
from silosynth.client.guard.entropy import Entropy, SystemEntropy
from silosynth.client.guard.guard import Guard
from silosynth.client.guard.identity import load_or_create
from silosynth.client.guard.ledger import Checkpoint, Ledger
from silosynth.client.guard.mechanism import Bench, Mechanism, Mechanisms, Report
from silosynth.client.mechanisms import MECHANISMS
from silosynth.common.config import parse
from silosynth.common.datasets.records import Records
from silosynth.common.queries import ClassCounts, encode
from silosynth.common.schema import Schema

SCHEMA = Schema((4,), 3)
DELTA = 1e-5
COURIER = {
    "silo": "toy",
    "guard": "unix:a",
    "ca": "ca",
    "certificate": "c",
    "key": "k",
    "node_key": "n",
    "server": {"fleet": "server.example:9092", "exchange": "server.example:9093"},
}


def toy_records(count: int = 30) -> Records:
    generator = np.random.default_rng(1)
    features = generator.uniform(-1, 1, (count, SCHEMA.dimension)).astype(np.float32)
    return Records(features, generator.integers(0, SCHEMA.classes, count), SCHEMA)


def counts_query(noise_multiplier: float) -> ClassCounts:
    return ClassCounts(schema=SCHEMA, noise_multiplier=noise_multiplier)


def counts_bytes(noise_multiplier: float) -> bytes:
    return encode(counts_query(noise_multiplier))


def ignore_progress(fraction: float) -> None:
    pass


def bench(entropy: Entropy, report: Report = ignore_progress, artifacts: Mapping[str, bytes] | None = None) -> Bench:
    """What a mechanism works with outside a guard; artifacts by their digests."""
    return Bench(entropy, report, dict(artifacts or {}).__getitem__)


def silo_tables(
    epsilon: float = 1.0,
    consent: str = "auto",
    mechanisms_allowed: Sequence[str] = tuple(MECHANISMS),
    max_values: int = 1_000_000,
    backbones: Sequence[str] = (),
) -> dict[str, dict[str, Any]]:
    """What silo.toml says, with a policy that allows everything unless told otherwise."""
    return {
        "silo": {"name": "toy"},
        "data": {"source": "npz", "path": "records.npz", "classes": SCHEMA.classes},
        "budget": {"epsilon": epsilon, "delta": DELTA},
        "policy": {
            "consent": consent,
            "mechanisms": list(mechanisms_allowed),
            "backbones": list(backbones),
            "max_values_per_release": max_values,
        },
        "guard": {"address": "unix:guard.sock", "ledger": "ledger.db", "key": "receipts.key"},
    }


def open_ledger(folder: Path, checkpoint: Checkpoint = lambda step: None) -> Ledger:
    return Ledger.open(folder / "ledger.db", "toy", load_or_create(folder / "receipts.key"), checkpoint)


def toy_guard(
    ledger: Ledger,
    mechanisms: Mechanisms = MECHANISMS,
    config: SiloConfig | None = None,
    on_rollback: Callable[[], None] = lambda: None,
    **settings: Any,
) -> Guard:
    if config is None:
        config = parse(SiloConfig, silo_tables(**{"mechanisms_allowed": tuple(mechanisms)} | settings), "test")
    return Guard(config, toy_records(), ledger, mechanisms, SystemEntropy(), on_rollback)


class CountedMechanism:
    """A mechanism that remembers how often it computed each query."""

    def __init__(self, inner: Mechanism = MECHANISMS["class_counts"]) -> None:
        self.computed: Counter[bytes] = Counter()
        self._inner = inner
        self._lock = threading.Lock()

    def __call__(self, query: Any, records: Records, bench: Bench) -> npt.NDArray[np.int64]:
        with self._lock:
            self.computed[encode(query)] += 1
        return self._inner(query, records, bench)
