"""Processor time of work on one thread: for ratios between two ways to do the same in one process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """Processor time of threads that wait for each other would count twice."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def fastest_seconds(work: Callable[[], object], rounds: int = 3) -> float:
    """Of processor time: others may be using this machine."""
    return min(_seconds(work) for _ in range(rounds))


def rivals_seconds(ours: Callable[[], object], theirs: Callable[[], object], rounds: int = 10) -> tuple[float, float]:
    """The fastest of each, taken in turns: whoever else uses this machine slows both."""
    times = [(_seconds(ours), _seconds(theirs)) for _ in range(rounds)]
    our_times, their_times = zip(*times, strict=True)
    return min(our_times), min(their_times)


def _seconds(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started
