"""A TCP proxy on loopback that cuts connections after so many bytes from the server, as bad networks do."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator


class CuttingProxy:
    """`cuts`: after how many bytes each of the first connections is cut; later ones are left alone."""

    def __init__(self, target: str, cuts: list[int]) -> None:
        host, port = target.rsplit(":", 1)
        self._target, self._cuts = (host, int(port)), list(cuts)
        self.cut = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                limit = self._cuts.pop(0) if self._cuts else None
                threading.Thread(target=self._carry, args=(client, limit), daemon=True).start()

    def _carry(self, client: socket.socket, limit: int | None) -> None:
        with client, contextlib.suppress(OSError), socket.create_connection(self._target) as server:
            threading.Thread(target=_pump, args=(client, server), daemon=True).start()
            passed = 0
            while data := server.recv(1 << 16):
                passed += len(data)
                if limit is not None and passed > limit:
                    self.cut += 1
                    client.shutdown(socket.SHUT_RDWR)
                    return
                client.sendall(data)


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def cutting_proxy(target: str, cuts: list[int]) -> Iterator[CuttingProxy]:
    proxy = CuttingProxy(target, cuts)
    try:
        yield proxy
    finally:
        proxy.close()
