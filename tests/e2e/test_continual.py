"""Releases that extend others: real guards, couriers, exchange, publisher and store; the recipe is SPS."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.fake_federation import Courier, Identities, open_exchange
from support.local_images import BRIEF, image_guard
from support.toy_images import TOY, toy_backbone, toy_records

from silosynth.client.guard.guard import Guard
from silosynth.client.guard.identity import load_or_create
from silosynth.client.guard.ledger import Ledger
from silosynth.client.guard.service import GuardServer
from silosynth.client.mechanisms import MECHANISMS
from silosynth.common.backbones import save_backbone
from silosynth.common.config import parse
from silosynth.common.datasets import Records
from silosynth.common.errors import ConfigError
from silosynth.common.publication.names import ReleaseName
from silosynth.common.schema import Schema
from silosynth.server.conduct import conduct
from silosynth.server.config import RunConfig
from silosynth.server.continual import Parent, load_parent
from silosynth.server.journal import Journal
from silosynth.server.releases.keys import create_key
from silosynth.server.releases.publisher import Publisher
from silosynth.server.witness import Witness

FOUR = Schema(TOY.shape, 4)


def fourth_class() -> Records:
    """Records of a class that the first silos never heard of."""
    pictures = toy_records((40, 0, 0), seed=9)
    return Records(-pictures.features, np.full(40, 3), FOUR)


RECORDS = {"a": toy_records(seed=1), "b": toy_records(seed=2), "c": fourth_class()}


@contextlib.contextmanager
def served(folder: Path) -> Iterator[tuple[Guard, str]]:
    folder.mkdir()
    ledger = Ledger.open(folder / "ledger.db", folder.name, load_or_create(folder / "receipts.key"))
    with contextlib.closing(ledger):
        policy = {"mechanisms": ["moments", "local_synthesis"]}
        guard = image_guard(
            ledger, MECHANISMS, epsilon=40.0, name=folder.name, records=RECORDS[folder.name], policy=policy
        )
        server = GuardServer(guard, "127.0.0.1:0")
        try:
            yield guard, server.address
        finally:
            server.stop()


class Server:
    """One server folder, through several runs."""

    def __init__(self, folder: Path, guards: dict[str, tuple[Guard, str]]) -> None:
        self.folder, self.guards = folder, guards
        self.identities = Identities(folder)
        create_key(folder)
        save_backbone(toy_backbone(), folder / "toy.safetensors")
        self.publisher = Publisher(folder, Witness(folder / "witness.db"))
        self.runs = 0

    def config(self, *silos: str, classes: int = 3, **changes: Any) -> RunConfig:
        usual = {"backbone": str(self.folder / "toy.safetensors")} | BRIEF
        parameters = changes.pop("chosen", usual | changes.pop("parameters", {}))
        tables = {
            "name": "toy",
            "recipe": "sps",
            "records": {"shape": TOY.shape, "classes": classes},
            "privacy": {"epsilon": 10.0},
            "federation": {"silos": silos, "grace_seconds": 15.0},
            "parameters": parameters,
        }
        return parse(RunConfig, tables | changes, "test")

    def run(self, *silos: str, **changes: Any) -> Parent:
        """One run, to its end; what it published, as a next run would load it."""
        self.runs += 1
        folder = self.folder / f"run-{self.runs}"
        folder.mkdir()
        config = self.config(*silos, **changes)
        with open_exchange(self.identities, list(silos)) as exchange:
            for silo in silos:
                Courier(self.identities.courier(silo, self.guards[silo][1]), exchange.address)
            journal = Journal(folder / "journal.jsonl")
            conduct(config, folder, self.folder / "work", exchange, self.publisher, journal)
        newest = self.publisher.store.entries()[-1]
        return load_parent(self.publisher.store, config.model_copy(update={"extends": str(newest.release)}))

    def spent(self) -> dict[str, float]:
        return {name: guard.budget().epsilon_spent for name, (guard, _) in self.guards.items()}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with contextlib.ExitStack() as stack:
        guards = {name: stack.enter_context(served(tmp_path / name)) for name in RECORDS}
        yield Server(tmp_path, guards)


def test_more_records_add_to_the_statistics_that_were_released(server: Server) -> None:
    first = server.run("a")
    spent = server.spent()
    second = server.run("a", "b", extends="toy/1")
    assert server.spent()["a"] == spent["a"], "it repeated its answer, and was not counted again"
    together = server.run("a", "b")
    (before,), (total,), (whole,) = first.statistics, second.statistics, together.statistics
    np.testing.assert_allclose(total.values, whole.values, atol=1e-9)
    assert total.noise_std == pytest.approx(whole.noise_std) == pytest.approx(before.noise_std * 2**0.5)
    assert np.array_equal(second.product.labels, together.product.labels)
    manifest = server.publisher.store.manifest(ReleaseName("toy", 2))
    assert manifest.release.parent is not None
    assert manifest.release.parent.version == 1
    assert manifest.privacy.epsilon_by_silo == pytest.approx({"a": spent["a"], "b": server.spent()["b"]})
    card = server.publisher.store.text(ReleaseName("toy", 2), "privacy-card.yaml")
    assert "extends toy/1" in " ".join(card.split())


def test_more_images_of_a_release_need_no_silo_to_pay(server: Server) -> None:
    first = server.run("a")
    spent = server.spent()
    more = server.run("a", extends="toy/1", parameters={"images_per_class": 5})
    assert np.bincount(more.product.labels).tolist() == [5, 5, 5]
    assert (more.statistics[0].values == first.statistics[0].values).all()
    assert server.spent() == spent


def test_new_classes_are_appended_and_the_old_ones_stay(server: Server) -> None:
    """The third run follows the first, though the second is newer; nobody of the first is asked."""
    first = server.run("a", "b")
    server.run("a")
    spent = server.spent()
    third = server.run("c", classes=4, extends="toy/1")
    before = len(first.product.labels)  # noise may make a class that the new silo lacks seem to be there
    assert third.product.labels[:before].tolist() == first.product.labels.tolist()
    assert (third.product.features[:before] == first.product.features).all()
    assert third.product.labels[-2:].tolist() == [3, 3]
    assert server.spent() | {"c": 0.0} == spent | {"c": 0.0}
    manifest = server.publisher.store.manifest(ReleaseName("toy", 3))
    assert manifest.release.parent is not None
    assert manifest.release.parent.version == 1
    assert manifest.privacy.epsilon_by_silo.keys() == {"a", "b", "c"}


def test_images_made_by_silos_join_those_of_a_release(server: Server) -> None:
    local = {"generation": "local"}
    first = server.run("a", parameters=local)
    second = server.run("a", "b", extends="toy/1", parameters=local)
    assert second.product.labels.tolist() == [*first.product.labels.tolist(), 0, 0, 1, 1, 2, 2]
    assert (second.product.features[:6] == first.product.features).all()


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"extends": "toy"}, "not the name of a release"),
        ({"extends": "toy/7"}, "never published"),
        ({"name": "other"}, "call it toy"),
        ({"recipe": "ridge", "chosen": {}}, "ridge extends no releases"),
        ({"records": {"shape": (4, 4, 1), "classes": 3}}, "keep the shape"),
        ({"classes": 2}, "name these classes first"),
        ({"seed": 5}, "repeat its seed"),
        ({"parameters": {"stages": 2}}, "need stages = 1"),
    ],
)
def test_what_cannot_be_extended_is_told_before_any_silo_is_asked(
    server: Server, changes: dict[str, Any], complaint: str
) -> None:
    server.run("a")
    before = [guard.budget().releases for guard, _ in server.guards.values()]
    with pytest.raises(ConfigError, match=complaint):
        server.run("a", "b", **{"extends": "toy/1"} | changes)
    assert [guard.budget().releases for guard, _ in server.guards.values()] == before


def test_a_withdrawn_release_is_not_extended(server: Server) -> None:
    server.run("a")
    server.publisher.store.withdraw(ReleaseName("toy", 1), "a mistake")
    with pytest.raises(ConfigError, match="withdrawn: a mistake"):
        server.run("b", extends="toy/1")
