"""Two hundred rounds of FedDPSD with five silos: how long a round takes beside its bare compute, and what memory does.

Guards are real processes with real ledgers; couriers run in threads. The bare compute is the same recipe with the same
records in one process, without ledger, network or files.
"""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from support.asked_guards import BUDGET, asked_guards

from silosynth.common.datasets import Records, load
from silosynth.common.partition import partition
from silosynth.common.shipped import BY_CHANNELS
from silosynth.deploy.federation import LocalFederation
from silosynth.deploy.inprocess import InProcess
from silosynth.server.recipes import recipe_named
from silosynth.server.recipes.base import Ask, Summed, Task, drive

SILOS, ROUNDS, SETTLED = 5, 200, 50


@pytest.mark.benchmark
@pytest.mark.slow
def test_two_hundred_rounds(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    train = load("digits", split="train")
    shards = [train.take(part) for part in partition("iid", train.labels, SILOS, seed=0)]
    bare = _seconds_by_round(train, InProcess(shards).ask)
    allowed = {"mechanisms": ["teacher_answers"], "backbones": [BY_CHANNELS[1]]}
    with asked_guards(tmp_path, shards, **allowed) as (federation, assembly):
        memory = list[int]()
        whole = _seconds_by_round(train, assembly.ask, lambda: memory.append(_megabytes(federation)))
    kept = [file for file in tmp_path.rglob("artifacts/*") if file.is_file()]
    print(
        f"\na round with {SILOS} silos: {1e3 * whole:.0f} ms, bare compute {1e3 * bare:.0f}, ratio {whole / bare:.2f}; "
        f"memory of server and guards after {SETTLED} rounds {memory[SETTLED]} MB, after {ROUNDS} {memory[-1]} MB; "
        f"{len(kept)} inputs left on disk",
        file=sys.stderr,
    )
    assert memory[-1] <= 1.05 * memory[SETTLED]
    assert not kept


def _seconds_by_round(
    train: Records, ask: Callable[[Ask], Summed], after_each: Callable[[], None] = lambda: None
) -> float:
    """The first one, which trains the teachers, is left out."""
    recipe, ends = recipe_named("feddpsd"), list[float]()
    parameters = recipe.parameters(
        teachers="plain", teacher_steps=50, rounds=ROUNDS, inputs=64, student_steps=5, generator_steps=1
    )

    def timed(step: Ask) -> Summed:
        answered = ask(step)
        ends.append(time.perf_counter())
        after_each()
        return answered

    drive(recipe.steps(Task(train.schema, BUDGET, 1e-5), parameters), timed)
    return (ends[-1] - ends[0]) / (ROUNDS - 1)


def _megabytes(federation: LocalFederation) -> int:
    """Resident, of this process, which is the server, and of all guards."""
    processes = [os.getpid(), *map(federation.guard_pid, federation.silos)]
    pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in processes)
    return pages * os.sysconf("SC_PAGE_SIZE") >> 20
