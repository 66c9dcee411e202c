"""Long computations do not hold up a page."""

from __future__ import annotations

import threading
import time

import pytest

from silosynth.common.errors import ConfigError
from silosynth.server.dashboard.reckoning import Reckoning


def test_what_takes_long_is_told_later_and_computed_once() -> None:
    reckoning, gate, times = Reckoning(), threading.Event(), []

    def compute() -> float:
        gate.wait()
        times.append(1)
        return 2.5

    assert reckoning.ask("a", compute) is None
    assert reckoning.ask("a", compute) is None
    assert reckoning.done == 0
    gate.set()
    wait_until_done(reckoning, 1)
    assert reckoning.ask("a", compute) == 2.5
    assert times == [1]


def test_what_is_quick_is_told_at_once() -> None:
    assert Reckoning().ask("b", lambda: 0.0) == 0.0


def test_who_asks_is_told_of_an_error_and_the_next_is_answered() -> None:
    reckoning = Reckoning()

    def fail() -> float:
        raise ConfigError("no such thing")

    with pytest.raises(ConfigError):
        reckoning.ask("c", fail)
    assert reckoning.ask("d", lambda: 1.0) == 1.0


def wait_until_done(reckoning: Reckoning, count: int) -> None:
    ends = time.monotonic() + 60
    while reckoning.done < count:
        assert time.monotonic() < ends
        time.sleep(0.01)
