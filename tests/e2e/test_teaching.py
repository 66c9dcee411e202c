"""FedDPSD over a real exchange, couriers and guards: teachers train once, a server that starts again pays nothing."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.fake_federation import Courier, Identities, open_exchange
from support.guards import silo_tables

from silosynth.client.config import SiloConfig
from silosynth.client.guard.entropy import SystemEntropy
from silosynth.client.guard.guard import Guard
from silosynth.client.guard.identity import load_or_create
from silosynth.client.guard.ledger import Ledger
from silosynth.client.guard.service import GuardServer
from silosynth.client.mechanisms import MECHANISMS
from silosynth.common.config import parse
from silosynth.common.datasets import Records, load
from silosynth.common.partition import partition
from silosynth.common.publication.accounting import privacy_of
from silosynth.common.shipped import BY_CHANNELS
from silosynth.server.assembly import Assembly
from silosynth.server.config import FederationSettings
from silosynth.server.journal import Journal
from silosynth.server.recipes import recipe_named
from silosynth.server.recipes.base import Product, Task, drive

SILOS = ("a", "b")
BRIEF = {"rounds": 3, "inputs": 24, "student_steps": 5, "generator_steps": 1, "records_per_class": 2}
KINDS: dict[str, dict[str, Any]] = {
    "dp-sgd": {"private_steps": 5},
    "sub-teachers": {"sub_teachers": 3, "teacher_steps": 5},
    "plain": {"teacher_steps": 5, "answers": "classes"},
}


@dataclass(frozen=True)
class Silo:
    name: str
    ledger: Ledger
    server: GuardServer


@contextlib.contextmanager
def open_silo(folder: Path, name: str, records: Records) -> Iterator[Silo]:
    folder.mkdir(exist_ok=True)
    tables = silo_tables(2.0, mechanisms_allowed=["teacher_answers"], backbones=[BY_CHANNELS[1]])
    tables["silo"]["name"] = name
    ledger = Ledger.open(folder / "ledger.db", name, load_or_create(folder / "receipts.key"))
    with contextlib.closing(ledger):
        guard = Guard(parse(SiloConfig, tables, "test"), records, ledger, MECHANISMS, SystemEntropy())
        server = GuardServer(guard, "127.0.0.1:0")
        try:
            yield Silo(name, ledger, server)
        finally:
            server.stop()


@dataclass
class StoppedServer(Exception):
    """As if it were killed when so many answers are in."""


def conducted(folder: Path, silos: list[Silo], kind: str, most: float = math.inf) -> tuple[Product, Assembly]:
    """A server's whole life, from an exchange of its own to the product."""
    identities = Identities(folder)
    recipe = recipe_named("feddpsd")
    task, parameters = Task(load("digits").schema, 1.0, 1e-5), recipe.parameters(teachers=kind, **BRIEF, **KINDS[kind])
    with open_exchange(identities, list(SILOS)) as exchange:
        for silo in silos:
            Courier(identities.courier(silo.name, silo.server.address), exchange.address)
        assembly = Assembly(exchange, FederationSettings(silos=SILOS, quorum=2), Journal(folder / "assembly.jsonl"))

        def ask(step: Any) -> Any:
            if len(assembly.queries) >= most:
                raise StoppedServer
            return assembly.ask(step)

        return drive(recipe.steps(task, parameters), ask), assembly


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_starts_again_goes_on_for_nothing(kind: str, tmp_path: Path) -> None:
    train = load("digits", split="train")
    shards = [train.take(part[:60]) for part in partition("iid", train.labels, len(SILOS), seed=0)]
    with contextlib.ExitStack() as stack:
        silos = [
            stack.enter_context(open_silo(tmp_path / name, name, shard))
            for name, shard in zip(SILOS, shards, strict=True)
        ]
        lives = [tmp_path / f"life-{number}" for number in range(3)]
        for life in lives:
            life.mkdir()
        with pytest.raises(StoppedServer):
            conducted(lives[0], silos, kind, most=2)
        product, assembly = conducted(lives[1], silos, kind)
        again, _ = conducted(lives[2], silos, kind)
        np.testing.assert_array_equal(product.features, again.features)
        entries = BRIEF["rounds"] + (kind == "dp-sgd")
        assert [silo.ledger.spent("default").releases for silo in silos] == [entries] * 2
        assert not list(tmp_path.glob("*/artifacts/*"))
    spent = privacy_of(assembly.receipts, 1e-5)
    assert spent.epsilon_worst is not None
    assert 0.97 < spent.epsilon_worst <= 1.0
