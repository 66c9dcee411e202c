"""SIGKILL of a real guard process under load: whatever was answered stays answered, with the same noise, once."""

from __future__ import annotations

import random
import sqlite3
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import grpc
import pytest
from support.guards import SCHEMA, open_ledger, silo_tables, toy_records
from support.killable_guard import Asker, GuardProcess, write_silo
from support.local_images import BACKBONE, local_query, shelve
from support.toy_images import TOY
from support.toy_images import toy_records as toy_images

from silosynth.client.guard.ledger import Step
from silosynth.common import events
from silosynth.common.queries import Mixtures, decode, encode
from silosynth.common.releases import open_release
from silosynth.protos.v1 import release_pb2

ASKERS = 4
LONGEST_LIFE_SECONDS = 0.4
NOISES = (3000.0, 4000.0, 5000.0)


def query(number: int) -> bytes:
    """Thousands of different questions, but few kinds of event, so that accounting is no part of the load."""
    return encode(
        Mixtures(
            schema=SCHEMA,
            noise_multiplier=NOISES[number % len(NOISES)],
            mixtures=1,
            sampling_probability=1.0,
            center=0.0,
            clip=0.5 + number / 2**16,
            count_weight=1.0,
        )
    )


@pytest.fixture
def folder() -> Iterator[Path]:
    """The path of a Unix socket must be short; pytest's own folders are not."""
    with tempfile.TemporaryDirectory(prefix="guard-") as name:
        yield Path(name)


class Storm:
    """One silo, asked by several clients through many lives of its guard; remembers all that ever came out."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.config = write_silo(folder, silo_tables(epsilon=1.0), toy_records())
        self.received: dict[int, bytes] = {}
        self.fresh: Counter[int] = Counter()
        self.answers = self.interrupted = 0
        self._folder = folder
        self._random = random.Random(seed)
        self._lock = threading.Lock()

    def live(self) -> None:
        """One life: everything answered before is asked again, then the guard is killed at a random instant."""
        with GuardProcess(self.config) as guard:
            guard.wait_until_ready()
            self.ask_everything_again(guard.address)
            with ThreadPoolExecutor(ASKERS) as pool:
                askers = [pool.submit(self.ask_until_it_dies, guard.address) for _ in range(ASKERS)]
                time.sleep(self._random.uniform(0.0, LONGEST_LIFE_SECONDS))
                guard.kill()
                for asker in askers:
                    asker.result()

    def die_starting(self) -> None:
        with GuardProcess(self.config) as guard:
            time.sleep(self._random.uniform(0.0, 1.5))
            guard.kill()

    def die_at(self, step: Step) -> None:
        """Killed at a step of the first commit, with several questions in flight."""
        with GuardProcess(self.config, kill_at=step) as guard:
            guard.wait_until_ready()
            with ThreadPoolExecutor(ASKERS) as pool:
                for asker in [pool.submit(self.ask_until_it_dies, guard.address) for _ in range(ASKERS)]:
                    asker.result()
            assert guard.killed_itself()

    def ask_everything_again(self, address: str) -> None:
        with Asker(address) as asker:
            for number in list(self.received):
                self._ask(asker, number)

    def ask_until_it_dies(self, address: str) -> None:
        with Asker(address) as asker:
            try:
                while True:
                    self._ask(asker, self._next_number())
            except grpc.RpcError:
                with self._lock:
                    self.interrupted += 1

    def _next_number(self) -> int:
        """A third of the questions are old; new ones are few at a time, so that clients ask the same one at once."""
        with self._lock:
            frontier = len(self.received)
            return self._random.choice([self._random.randrange(frontier + 1), frontier, frontier + 1])

    def _ask(self, asker: Asker, number: int) -> None:
        sealed, replayed = asker.sealed(query(number))
        with self._lock:
            self.answers += 1
            self.fresh[number] += not replayed
            assert self.received.setdefault(number, sealed) == sealed, f"question {number} was drawn twice"

    def check(self) -> int:
        """One more life in peace, then the ledger itself; returns its number of rows."""
        with GuardProcess(self.config) as guard:
            guard.wait_until_ready()
            self.ask_everything_again(guard.address)
            assert guard.stop() == 0
        return self.check_ledger()

    def check_ledger(self) -> int:
        assert max(self.fresh.values(), default=0) <= 1, "a question was answered afresh twice"
        with closing(open_ledger(self._folder)) as ledger:  # verifies the chain
            spent = ledger.spent("default")
        with closing(sqlite3.connect(self._folder / "ledger.db")) as database:
            rows = database.execute("SELECT query, sealed, event FROM entries").fetchall()
        stored = {question: sealed for question, sealed, _ in rows}
        for question, sealed in stored.items():
            open_release(decode(question), sealed)
        charged = [events.from_proto(release_pb2.Event.FromString(event)) for _, _, event in rows]
        assert len(stored) == len(rows) == spent.releases, "a question has two rows"
        assert {query(number): sealed for number, sealed in self.received.items()}.items() <= stored.items()
        assert events.merge(charged) == spent.events
        assert events.merge(decode(question).event() for question in stored) == spent.events
        return len(rows)


def storm(folder: Path, silos: int, kills_each: int) -> None:
    """Several silos rather than one long ledger, so that everything can be asked again in every life."""
    answers = rows = received = 0
    for silo in range(silos):
        place = folder / str(silo)
        place.mkdir()
        stormy = Storm(place, seed=silo)
        for _ in range(kills_each):
            stormy.live()
        rows += stormy.check()
        answers, received = answers + stormy.answers, received + len(stormy.received)
        assert stormy.interrupted == ASKERS * kills_each
    assert rows > silos * kills_each / 4, "hardly anything was asked: this was no load"
    print(
        f"\n{silos * kills_each} SIGKILLs under load: {answers} answers to {received} questions, {rows} ledger rows, "
        f"0 lost commits, 0 double draws, {rows - received} answers committed that a kill kept from their asker"
    )


def test_kills_under_load(folder: Path) -> None:
    storm(folder, silos=1, kills_each=12)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_five_hundred_kills_under_load(folder: Path) -> None:
    storm(folder, silos=20, kills_each=25)


def test_a_kill_at_each_step(folder: Path) -> None:
    """Before COMMITTED nothing was charged; from then on the answer is there, though nobody has received it."""
    stormy = Storm(folder, seed=99)
    rows = []
    for step in Step:
        stormy.die_at(step)
        rows.append(stormy.check_ledger())
    assert rows == [int(step is Step.COMMITTED) for step in Step]
    stormy.check()
    print(f"\none SIGKILL at each of {', '.join(Step)}: ledger rows {rows}")


def test_kills_in_the_middle_of_making_images(folder: Path) -> None:
    """Each life ends when it has charged one thing more: two statistics, then the images made of them."""
    tables = silo_tables(epsilon=3.0, backbones=[BACKBONE])
    tables["data"]["classes"], tables["guard"]["device"] = TOY.classes, "cpu"
    config = write_silo(folder, tables, toy_images())
    shelve(folder)
    query = local_query(4.0, stages=2)
    entries: list[list[bytes]] = []
    for _ in range(3):
        with GuardProcess(config, kill_at=Step.COMMITTED) as guard:
            guard.wait_until_ready()
            with Asker(guard.address) as asker, pytest.raises(grpc.RpcError):
                asker.parts(encode(query))
            assert guard.killed_itself()
        with closing(sqlite3.connect(folder / "ledger.db")) as database:
            entries.append([sealed for (sealed,) in database.execute("SELECT sealed FROM entries ORDER BY sequence")])
    assert [len(life) for life in entries] == [1, 2, 3]
    assert entries[0] == entries[1][:1] == entries[2][:1]
    assert entries[1] == entries[2][:2]
    with GuardProcess(config) as guard:
        guard.wait_until_ready()
        with Asker(guard.address) as asker:
            sealed, replayed = asker.sealed(encode(query))
        assert guard.stop() == 0
    assert (sealed, replayed) == (entries[2][2], True)
    open_release(query, sealed)
    with closing(open_ledger(folder)) as ledger:
        (spent,) = ledger.spent("default").events
    assert (spent.noise_multiplier, spent.count) == (pytest.approx(4.0), 2)


def test_kills_while_starting(folder: Path) -> None:
    """The first start creates key and ledger, later ones recover the write-ahead log of a killed life."""
    stormy = Storm(folder, seed=7)
    for _ in range(3):
        stormy.die_starting()
    stormy.live()
    stormy.die_starting()
    stormy.check()
