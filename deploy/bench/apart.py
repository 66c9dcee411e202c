"""The server of a run in a process of its own, so that its time and memory are told from those of the silos."""

from __future__ import annotations

import multiprocessing
import resource
import time
from functools import cache
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext

import torch

from silosynth.common.datasets import Records
from silosynth.common.errors import SilosynthError
from silosynth.deploy.bench.asking import Finding, found_by_asking
from silosynth.deploy.bench.matrix import Cell, Matrix
from silosynth.deploy.inprocess import InProcess
from silosynth.server.collecting import collection
from silosynth.server.recipes.base import Ask, Summed


def found_apart(matrix: Matrix, cell: Cell, shards: list[Records], test: Records) -> Finding:
    """The same as `found_by_asking`, with the server's peak memory: silos' records never were in it."""
    here, there = multiprocessing.Pipe()
    told = (there, len(shards), matrix, cell, test)
    process = _fresh_processes().Process(target=_serve, args=told, daemon=True)
    process.start()
    there.close()  # else its death would not be noticed
    try:
        finding, seconds, sent = _answer_until_found(here, InProcess(shards))
    except EOFError as error:
        raise SilosynthError(f"the server of {cell.words()} died: what it said is above") from error
    finally:
        process.terminate()
        process.join()
    return finding | {"silo_seconds": round(seconds / len(shards), 3), "sent_bytes": sent}


@cache
def _fresh_processes() -> ForkServerContext:
    """They come of one that has done nothing but import: nobody's records, and no seconds for torch each time."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


def _answer_until_found(server: Connection, silos: InProcess) -> tuple[Finding, float, int]:
    seconds, sent = 0.0, 0
    while isinstance(asked := server.recv(), Ask):
        answers = silos.answers(asked)
        for _ in silos.shards:
            begun = time.process_time()
            answer = next(answers)
            seconds += time.process_time() - begun
            server.send(answer)
        sent += 8 * asked.query.layout().size
    return asked, seconds, sent


def _serve(silos: Connection, count: int, matrix: Matrix, cell: Cell, test: Records) -> None:
    torch.set_num_threads(1)
    silos.send(found_by_asking(matrix, cell, _Apart(silos, count), test))


class _Apart:
    """Silos at the other end of a pipe; an answer is added to the sum as it comes, as the exchange does it."""

    def __init__(self, silos: Connection, count: int) -> None:
        self._silos, self._count, self._idle = silos, count, _peak_bytes()

    def ask(self, asked: Ask) -> Summed:
        self._silos.send(asked)
        collected = collection(asked.query)
        for _ in range(self._count):
            collected.add(*self._silos.recv())
        return collected.all()

    def costs(self, seconds: float) -> Finding:
        return {
            "server_seconds": round(seconds, 3),
            "server_idle_bytes": self._idle,
            "server_peak_bytes": _peak_bytes(),
        }


def _peak_bytes() -> int:
    """Of resident memory, in this process, until now."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
