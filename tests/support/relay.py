"""A network that fails when a test says so, and patience with what happens in other threads."""

from __future__ import annotations

import contextlib
import math
import socket
import threading
import time
from collections.abc import Callable


def wait_for(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, "waited too long"
        time.sleep(0.02)


class CuttableRelay:
    """A TCP relay on loopback whose connections can be cut, as a network does.

    `most_bytes` from the target pass before the first cut: however slow the machine, the cut comes in the middle.
    """

    def __init__(self, target: str, most_bytes: float = math.inf) -> None:
        host, port = target.rsplit(":", 1)
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._pairs: list[socket.socket] = []
        self._most_bytes, self._was_cut = most_bytes, threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    def __enter__(self) -> CuttableRelay:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        self._was_cut.set()
        for end in self._pairs:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self._pairs.clear()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._target)
                self._pairs += [near, far]
                for source, sink, most in ((near, far, math.inf), (far, near, self._most_bytes)):
                    threading.Thread(target=self._pump, args=(source, sink, most), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, most_bytes: float) -> None:
        passed = 0
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                passed += len(data)
                if passed > most_bytes:
                    self._was_cut.wait()
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)
