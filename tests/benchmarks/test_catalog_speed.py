"""How fast a release of one gigabyte is pulled on loopback beside a raw copy of its bytes, and in how much memory.

Sender and receiver are processes of their own each time. The raw copy reads a file, sends it through a plain socket and
writes it: no encryption, no digests, no framing. The pull has TLS and a token, checks digests as bytes arrive, and then
verifies the whole folder from the disk again.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from support.published import Server, product, run_config

from silosynth.common.publication.verification import verify_release
from silosynth.deploy.addresses import free_port, listening
from silosynth.deploy.consumers import write_access
from silosynth.deploy.processes import Processes
from silosynth.deploy.server_folder import ServerFolder, write_toml
from silosynth.server.config import CatalogSettings

GIGABYTE, MEGABYTE = 1 << 30, 1 << 20
REPEATS = 3
MOST_GROWTH = 32 * MEGABYTE

PULL = """
import json, sys, time
from pathlib import Path
from silosynth.client.releases.access import Access
from silosynth.client.releases.catalog import Catalog
from silosynth.client.releases.shelf import Shelf
from silosynth.common.publication.names import ReleaseName
access, shelf, name = sys.argv[1:]
catalog, arrived = Catalog(Access.from_file(Path(access))), []
begun = time.monotonic()
catalog.pull(ReleaseName.parse(name), Shelf(Path(shelf)), lambda done, total: arrived.append(time.monotonic()))
peak = 1024 * int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
facts = {"arrived": arrived[-1] - begun, "verified": time.monotonic() - begun, "peak": peak}
print(json.dumps({**facts, "cpu": time.process_time()}))
"""
SEND = """
import socket, sys, time
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
connection, _ = listener.accept()
with connection, open(sys.argv[1], "rb") as file:
    while data := file.read(1 << 18):
        connection.sendall(data)
print(time.process_time())
"""
RECEIVE = """
import json, socket, sys, time
begun = time.monotonic()
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection, open(sys.argv[2], "wb") as file:
    while data := connection.recv(1 << 18):
        file.write(data)
print(json.dumps({"seconds": time.monotonic() - begun, "cpu": time.process_time()}))
"""


@pytest.mark.benchmark
@pytest.mark.timeout(900)
def test_a_gigabyte_comes_in_constant_memory(tmp_path: Path) -> None:
    server = Server(tmp_path / "server")
    for number, size in enumerate((MEGABYTE, GIGABYTE)):
        noise = np.random.default_rng(number).integers(0, 1 << 32, size // 4, dtype=np.uint32)
        original, _ = server.publish(product(models={"noise": {"noise": noise}}), run_config(seed=number))
        del noise
    with _catalog_process(server, tmp_path) as process:
        small = _pull(tmp_path, 1, process)
        raws, pulls = [], []
        for _ in range(REPEATS):  # by turns, and the best of each counts: other programs disturb both
            raws.append(_raw_copy(original / "models/noise.safetensors", tmp_path / "copy"))
            pulls.append(_pull(tmp_path, 2, process))
    bytes_pulled = verify_release(tmp_path / "shelf/night-shift/2").size
    raw = {key: min(each[key] for each in raws) for key in raws[0]}
    large = {key: min(each[key] for each in pulls) for key in pulls[0]}
    large |= {who: max(each[who] for each in pulls) for who in ("peak", "server_peak")}
    for who in ("peak", "server_peak"):
        assert large[who] - small[who] < MOST_GROWTH, who
    print(
        f"\n{bytes_pulled / 1e9:.2f} GB on loopback, best of {REPEATS}: raw socket {raw['seconds']:.2f} s "
        f"({raw['cpu']:.2f} s of CPU); streamed {large['arrived']:.2f} s, {raw['seconds'] / large['arrived']:.2f} of "
        f"the raw throughput; and verified from the disk {large['verified']:.2f} s ({large['cpu']:.2f} s of CPU), "
        f"{raw['seconds'] / large['verified']:.2f} of it. Peak memory, 1 MB release -> 1 GB release: consumer "
        f"{small['peak'] / 1e6:.0f} -> {large['peak'] / 1e6:.0f} MB, catalog {small['server_peak'] / 1e6:.0f} -> "
        f"{large['server_peak'] / 1e6:.0f} MB",
        file=sys.stderr,
    )


class _Watched:
    """A running process, as the kernel knows it."""

    def __init__(self, pid: int) -> None:
        self._folder = Path(f"/proc/{pid}")

    def peak(self) -> int:
        return 1024 * int((self._folder / "status").read_text().partition("VmHWM:")[2].split()[0])

    def cpu(self) -> float:
        ticks = (self._folder / "stat").read_text().rpartition(")")[2].split()[11:13]
        return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def _catalog_process(server: Server, folder: Path) -> Iterator[_Watched]:
    """The catalog as a server runs it."""
    ports = CatalogSettings(port=free_port(), consumer_port=free_port())
    write_toml(server.folder / "server.toml", server.config().model_copy(update={"catalog": ports}))
    write_access(ServerFolder(server.folder), "consumer", folder / "access.toml")
    with Processes(folder / "logs") as processes:
        ServerFolder(server.folder).start_catalog(processes)
        processes.wait_until(partial(listening, f"127.0.0.1:{ports.consumer_port}"), "the catalog")
        yield _Watched(processes.children["catalog"].process.pid)


def _pull(folder: Path, version: int, server: _Watched) -> dict[str, float]:
    shutil.rmtree(folder / "shelf", ignore_errors=True)
    before = server.cpu()
    pulled = _python(PULL, str(folder / "access.toml"), str(folder / "shelf"), f"night-shift/{version}")
    pulled["cpu"] += server.cpu() - before
    return {**pulled, "server_peak": server.peak()}


def _raw_copy(source: Path, target: Path) -> dict[str, float]:
    with subprocess.Popen([sys.executable, "-c", SEND, str(source)], stdout=subprocess.PIPE, text=True) as sender:
        assert sender.stdout is not None
        copied = _python(RECEIVE, sender.stdout.readline().strip(), str(target))
        copied["cpu"] += float(sender.stdout.readline())
    assert target.stat().st_size == source.stat().st_size
    return copied


def _python(program: str, *arguments: str) -> dict[str, float]:
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    facts: dict[str, float] = json.loads(done.stdout)
    return facts
