"""Silos that make images themselves: real guards, couriers, exchange and assembly, and a silo that comes late."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.fake_federation import Courier, Identities, open_exchange
from support.local_images import BACKBONE, BRIEF, image_guard
from support.toy_images import TOY, toy_backbone, toy_records

from silosynth.client.guard.guard import Guard
from silosynth.client.guard.identity import load_or_create
from silosynth.client.guard.ledger import Ledger
from silosynth.client.guard.service import GuardServer
from silosynth.client.mechanisms import MECHANISMS
from silosynth.common.backbones import save_backbone
from silosynth.common.events import PostProcessing
from silosynth.common.publication.accounting import privacy_of
from silosynth.common.synthesis.sps_parameters import SpsParameters
from silosynth.server.assembly import Assembly
from silosynth.server.config import FederationSettings
from silosynth.server.journal import Journal
from silosynth.server.recipes.base import Product, Task, drive
from silosynth.server.recipes.sps import Sps

SIZES = {"a": (30, 30, 0), "b": (30, 0, 30), "c": (0, 30, 30)}
DELTA = 1e-5


@contextlib.contextmanager
def served(folder: Path) -> Iterator[tuple[Guard, str]]:
    """A guard whose shelf is empty: the courier has to bring the backbone."""
    folder.mkdir()
    ledger = Ledger.open(folder / "ledger.db", folder.name, load_or_create(folder / "receipts.key"))
    with contextlib.closing(ledger):
        guard = image_guard(ledger, MECHANISMS, epsilon=20.0, name=folder.name, records=toy_records(SIZES[folder.name]))
        (folder / "artifacts" / BACKBONE).unlink()
        server = GuardServer(guard, "127.0.0.1:0")
        try:
            yield guard, server.address
        finally:
            server.stop()


class Federation:
    def __init__(self, folder: Path, guards: dict[str, str]) -> None:
        self.folder, self.guards = folder, guards
        self.identities = Identities(folder)
        save_backbone(toy_backbone(), folder / "toy.safetensors")

    def run(self, *silos: str) -> tuple[Product, Assembly]:
        """One run of the same configuration with these silos."""
        parameters = SpsParameters(
            **BRIEF | {"stages": 2, "generation": "local", "backbone": str(self.folder / "toy.safetensors")}
        )
        with open_exchange(self.identities, list(silos)) as exchange:
            for silo in silos:
                Courier(self.identities.courier(silo, self.guards[silo]), exchange.address)
            settings = FederationSettings(silos=silos, grace_seconds=15.0)
            assembly = Assembly(exchange, settings, Journal(self.folder / "assembly.jsonl"))
            return drive(Sps().steps(Task(TOY, 10.0, DELTA), parameters), assembly.ask), assembly

    def told(self, kind: str) -> list[dict[str, object]]:
        entries = map(json.loads, (self.folder / "journal.jsonl").read_text().splitlines())
        return [entry for entry in entries if entry["kind"] == kind]


def test_a_silo_that_joins_later_adds_its_images_and_nobody_else_pays(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        guards = {name: stack.enter_context(served(tmp_path / name)) for name in SIZES}
        federation = Federation(tmp_path, {name: address for name, (_, address) in guards.items()})
        early, _ = federation.run("a", "b")
        spent = {name: guard.budget().epsilon_spent for name, (guard, _) in guards.items()}
        later, assembly = federation.run("a", "b", "c")
        before = len(early.labels)  # not a fixed number: of 100 missing classes, noise makes two seem to be there
        assert later.labels[:before].tolist() == early.labels.tolist()
        assert (later.features[:before] == early.features).all()
        assert set(early.labels.tolist()) == {0, 1, 2}
        assert {1, 2} <= set(later.labels[before:].tolist())
        after = {name: guard.budget() for name, (guard, _) in guards.items()}
        assert [after[name].epsilon_spent for name in "ab"] == [spent[name] for name in "ab"]
        assert spent["c"] == 0
        assert [status.releases for status in after.values()] == [3, 3, 3]
        check_costs(assembly, {name: status.epsilon_spent for name, status in after.items()})
        assert {entry["silo"] for entry in federation.told("progress")} == set(SIZES)


def check_costs(assembly: Assembly, spent: dict[str, float]) -> None:
    """What a release tells of its cost, from its receipts alone, is what each ledger says."""
    assert all(isinstance(receipt.event, PostProcessing) for receipt in assembly.receipts)
    privacy = privacy_of(assembly.receipts, DELTA)
    assert privacy.epsilon_by_silo == pytest.approx(spent)
    assert privacy.epsilon_worst is not None
    assert 9.9 < privacy.epsilon_worst <= 10
