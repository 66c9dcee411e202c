"""Accounting takes seconds where many kinds of events compose: it is done in the background, and pages come at once."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from typing import Any, TypeVar

Answer = TypeVar("Answer")
_PATIENCE_SECONDS = 0.25  # most are quicker


class Reckoning:
    """Safe to use from many threads. What was computed once stays known: what it is computed from never changes."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Future[Any]] = {}
        self._orders: queue.Queue[tuple[Future[Any], Callable[[], Any]]] = queue.Queue()
        self._lock = threading.Lock()
        self.done = 0
        threading.Thread(target=self._work, daemon=True).start()

    def ask(self, key: Hashable, compute: Callable[[], Answer]) -> Answer | None:
        """None if it is not known yet: ask again when `done` has grown."""
        with self._lock:
            if key not in self._known:
                self._known[key] = Future()
                self._orders.put((self._known[key], compute))
            future: Future[Answer] = self._known[key]
        try:
            return future.result(_PATIENCE_SECONDS)
        except NotYet:
            return None

    def _work(self) -> None:
        while True:
            future, compute = self._orders.get()
            try:
                future.set_result(compute())
            except BaseException as error:  # whoever asked is told
                future.set_exception(error)
            self.done += 1
