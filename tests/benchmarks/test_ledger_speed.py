"""What durability and proof cost: a commit beside a bare fsync, verification of the chain beside a bare SHA-256."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import time
from collections import deque
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from support.guards import SCHEMA, open_ledger

from silosynth.client.guard import chain
from silosynth.client.guard.identity import load_or_create
from silosynth.client.guard.ledger import Ledger
from silosynth.common.queries import Mixtures, decode, encode

COMMITS, ENTRIES = 500, 10_000
TINY, USUAL = b"tiny", bytes(range(256)) * 20  # the latter: 5 kB, a small release


def query(number: int) -> bytes:
    """Different questions of one kind of event."""
    return encode(
        Mixtures(
            schema=SCHEMA,
            noise_multiplier=1e4,
            mixtures=1,
            sampling_probability=1.0,
            center=0.0,
            clip=0.5 + number / 2**16,
            count_weight=1.0,
        )
    )


def commit(ledger: Ledger, number: int, payload: bytes) -> None:
    question = query(number)
    ledger.commit("default", question, decode(question).event(), lambda spent: None, lambda: payload)


def fill(ledger: Ledger, first: int, count: int) -> None:
    """Without waiting for the disk: what is measured comes later."""
    ledger._connection.execute("PRAGMA synchronous = OFF")
    with patch("silosynth.client.guard.ledger.write_head"):
        for number in range(first, first + count):
            commit(ledger, number, USUAL)
    ledger._connection.execute("PRAGMA synchronous = FULL")


def seconds_of(action: Callable[[], object]) -> float:
    begun = time.perf_counter()
    action()
    return time.perf_counter() - begun


def compare(name: str, ledger: Ledger, first: int, scratch: Path) -> None:
    """Commits in turn with a page appended to a file and synced, the least that anything durable costs here."""
    commits, syncs = [], []
    with scratch.open("wb", buffering=0) as file:
        for number in range(first, first + COMMITS):
            syncs.append(seconds_of(lambda: (file.write(bytes(4096)), os.fsync(file.fileno()))))
            commits.append(seconds_of(partial(commit, ledger, number, TINY)))
    (median, late), (bare, bare_late) = (np.percentile(times, [50, 99]) * 1e3 for times in (commits, syncs))
    print(
        f"{name}: median {median:.2f} ms, p99 {late:.2f} ms; bare fsync {bare:.2f} and {bare_late:.2f} ms; "
        f"ratio of medians {median / bare:.1f}"
    )


@pytest.mark.benchmark
@pytest.mark.timeout(1800)
def test_commit_latency(tmp_path: Path) -> None:
    print()
    with closing(open_ledger(tmp_path)) as ledger:
        compare("tiny commit to an empty ledger", ledger, 0, tmp_path / "bare")
        fill(ledger, COMMITS, ENTRIES)
        compare(f"tiny commit after {ENTRIES} entries", ledger, COMMITS + ENTRIES, tmp_path / "bare")


@pytest.mark.benchmark
@pytest.mark.timeout(1800)
def test_verification_rate(tmp_path: Path) -> None:
    with closing(open_ledger(tmp_path)) as ledger:
        fill(ledger, 0, ENTRIES)
    public_key = load_or_create(tmp_path / "receipts.key").public_key
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as connection:
        verifying = seconds_of(lambda: deque(chain.audit(connection, public_key), maxlen=0))
        rows = connection.execute("SELECT sealed FROM entries").fetchall()
    hashing = seconds_of(lambda: [hashlib.sha256(sealed).digest() for (sealed,) in rows])
    megabytes = sum(len(sealed) for (sealed,) in rows) / 1e6
    print(
        f"\nchain of {ENTRIES} entries, {megabytes:.0f} MB: verified in {verifying:.2f} s, "
        f"{ENTRIES / verifying:.0f} entries/s, {megabytes / verifying:.0f} MB/s; "
        f"bare SHA-256 {megabytes / hashing:.0f} MB/s, ratio {verifying / hashing:.0f}"
    )
