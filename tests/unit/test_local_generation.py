"""Local generation of SPS: a silo's own images, their union, and silos that join later."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.entropies import SeededEntropy
from support.guards import DELTA, bench, ignore_progress, open_ledger
from support.local_images import BACKBONE, BRIEF, FILE, image_guard, local_query, of_more, spatial_query
from support.toy_images import TOY, toy_backbone, toy_records

from silosynth.client.guard.guard import Guard
from silosynth.client.guard.identity import load_or_create
from silosynth.client.guard.ledger import Ledger
from silosynth.client.mechanisms import MECHANISMS
from silosynth.client.mechanisms.local_synthesis import own_seed
from silosynth.common.accounting import epsilon
from silosynth.common.backbones import save_backbone
from silosynth.common.datasets import Records
from silosynth.common.errors import DataError, QueryError
from silosynth.common.queries import LocalSynthesis, Query, encode
from silosynth.common.queries.local_synthesis import canonical_json
from silosynth.common.releases import open_release
from silosynth.common.synthesis import paper_sps, sps
from silosynth.common.synthesis.local import parameters_of, settings_of
from silosynth.common.synthesis.sps_parameters import SpsParameters
from silosynth.deploy.inprocess import InProcess
from silosynth.server.collecting import Union
from silosynth.server.recipes.base import Ask, Product, Task, United, drive
from silosynth.server.recipes.sps import Sps
from silosynth.server.recipes.sps_local import union

NO_NOISE = Task(TOY, float("inf"), 1e-5, seed=3)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file, as users name their own backbones."""
    path = tmp_path_factory.mktemp("backbone") / "toy.safetensors"
    save_backbone(toy_backbone(), path)
    return str(path)


def parameters(network: str, **others: Any) -> SpsParameters:
    return SpsParameters(**BRIEF | {"generation": "local", "backbone": network} | others)


def made(network: str, *shards: Records, task: Task = NO_NOISE, **others: Any) -> Product:
    return drive(Sps().steps(task, parameters(network, **others)), InProcess(list(shards), SeededEntropy()).ask)


class TestUnion:
    @pytest.mark.parametrize("stages", [1, 2])
    def test_every_silo_adds_images_of_its_own(self, network: str, stages: int) -> None:
        product = made(network, toy_records(seed=1), toy_records(seed=1), stages=stages)
        assert product.features.shape == (12, 8, 8, 1)
        assert product.labels.tolist() == [0, 0, 1, 1, 2, 2] * 2
        assert np.abs(product.features).max() <= 1
        assert not (product.features[:6] == product.features[6:]).all(), "the same records, but other starts"

    def test_classes_that_a_silo_lacks_come_from_others(self, network: str) -> None:
        product = made(network, toy_records((40, 0, 40)), toy_records((0, 40, 40)))
        assert product.labels.tolist() == [0, 0, 2, 2, 1, 1, 2, 2]

    def test_a_class_no_larger_than_noise_is_left_out(self, network: str) -> None:
        """At epsilon 8 a count is known to about 3 records."""
        product = made(network, toy_records((1, 60, 60)), task=replace(NO_NOISE, epsilon=8.0))
        assert set(product.labels.tolist()) == {1, 2}

    def test_nothing_but_noise_is_no_dataset(self, network: str) -> None:
        with pytest.raises(DataError, match="larger epsilon"):
            made(network, toy_records((0, 0, 0)))

    def test_soft_labels_are_probabilities_again(self) -> None:
        query = replace(local_query(), labels="gaussian")
        blocks = {
            "images": np.zeros((3, 2, 8, 8, 1)),
            "known": np.array([1, 0, 1]),
            "soft_labels": np.tile([100, 20, 6], (3, 2, 1)),
        }
        collected = Union(query)
        collected.add("a", query.layout().join(blocks).astype(np.int64))
        united = collected.all()
        assert united.parts[0]["images"].dtype == np.int8
        product = union(TOY, united)
        assert product.labels.tolist() == [0, 0, 2, 2]
        assert product.soft_labels is not None
        np.testing.assert_allclose(product.soft_labels, np.tile(np.array([100, 20, 6]) / 126, (4, 1)), rtol=1e-6)

    def test_what_it_costs_is_what_central_generation_costs(self, network: str) -> None:
        """The same noise multiplier for the same budget: what a silo asks itself is what it would have sent."""
        task = Task(TOY, 2.0, 1e-5)
        local, central = (
            Ask.of(next(Sps().steps(task, parameters(network, stages=2, generation=way)))).query
            for way in ("local", "central")
        )
        assert isinstance(local, LocalSynthesis)
        assert local.questions == 2
        assert local.noise_multiplier == pytest.approx(central.noise_multiplier / 2**0.5)
        assert local.backbones() == central.backbones()


class TestMechanism:
    def run(
        self, query: LocalSynthesis, records: Records | None = None, **others: Any
    ) -> tuple[np.ndarray, list[Query]]:
        asked: list[Query] = []
        shelf = {BACKBONE: FILE}

        def ask(inner: Query, artifacts: Mapping[str, bytes]) -> np.ndarray:
            asked.append(inner)
            inner_bench = bench(SeededEntropy(), artifacts=shelf | dict(artifacts))
            return MECHANISMS[inner.mechanism](inner, toy_records() if records is None else records, inner_bench)

        outer = replace(bench(SeededEntropy(), artifacts=shelf), ask=ask, **{"silo": "a"} | others)
        return MECHANISMS[query.mechanism](query, toy_records((0, 0, 0)), outer), asked

    def test_the_images_are_those_of_a_conversation_with_oneself(self) -> None:
        query = local_query(0.0)
        values, asked = self.run(query)
        assert [inner.event() for inner in asked] == [query.event()]
        blocks = query.layout().split(values.astype(np.float64))
        assert blocks["known"].tolist() == [1, 1, 1]
        job = sps.Job(TOY, 0.0, own_seed(0, "a"), lambda share, loss, sketch: None)
        conversation = sps.converse(job, parameters_of(query, "cpu"), toy_backbone())
        question = next(conversation)
        exact = MECHANISMS["moments"](question.query, toy_records(), bench(SeededEntropy(), artifacts={BACKBONE: FILE}))
        with pytest.raises(StopIteration) as stop:
            conversation.send(sps.Answer(exact * question.query.grid(), 0.0))
        expected = stop.value.value.images[stop.value.value.labels == 1].permute(0, 2, 3, 1).numpy()
        np.testing.assert_allclose((blocks["images"][1] + 128) / 127.5 - 1, expected, atol=1 / 127)

    def test_progress_is_that_of_synthesis(self) -> None:
        seen: list[float] = []
        self.run(local_query(0.0, stages=2), report=seen.append)
        assert seen == sorted(seen)
        assert seen[-1] == 1.0

    def test_a_silo_goes_on_from_its_scratch_folder(self, tmp_path: Path) -> None:
        """Of two stages, the second is about the very images that the first left."""
        query = local_query(0.0, stages=2)
        first, asked = self.run(query, scratch=tmp_path)
        again, asked_again = self.run(query, scratch=tmp_path)
        assert (first == again).all()
        assert asked == asked_again

    @pytest.mark.parametrize(
        ("change", "complaint"),
        [
            ({"steps": 20_001}, "more than the 20000"),
            ({"steps": 0}, "settings: steps"),
            ({"stages": -1}, "settings: stages"),
            ({"backbone": "/etc/passwd"}, "backbone cannot be chosen"),
            ({"devices": ["cuda:7"]}, "devices cannot be chosen"),
            ({"colour": "red"}, "settings: colour: unknown key"),
        ],
    )
    def test_settings_that_a_silo_does_not_take(self, change: dict[str, Any], complaint: str) -> None:
        query = local_query()
        settings = canonical_json(json.loads(query.settings) | change)
        with pytest.raises(QueryError, match=complaint):
            self.run(replace(query, settings=settings))

    def test_a_conversation_that_makes_other_images_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(
            paper_sps, "balanced_labels", lambda classes, each: torch.zeros(classes * each, dtype=torch.long)
        )
        with pytest.raises(QueryError, match="other images than 2 of each of 3 classes"):
            self.run(local_query(0.0))

    def test_soft_labels_travel_beside_the_images(self) -> None:
        query = spatial_query(0.0)
        values, asked = self.run(query)
        assert len(asked) == 2
        soft = query.layout().split(values.astype(np.float64))["soft_labels"]
        assert np.abs(soft.sum(axis=2) - 127).max() <= 2


def test_settings_survive_the_journey() -> None:
    chosen = SpsParameters(**BRIEF | {"stages": 3, "clips": (0.1, 0.2, 0.3), "autocast": True, "preset": "quick"})
    query = replace(local_query(), settings=settings_of(chosen), questions=3)
    expected = chosen.model_copy(update={"devices": ("cpu",), "autocast": False})
    assert parameters_of(query, "cpu") == expected


class TestLateSilos:
    """Guards with real ledgers, asked in turn, as an assembly does."""

    def ask(self, guards: dict[str, Guard], query: LocalSynthesis) -> tuple[United, dict[str, bool]]:
        collected, replayed = Union(query), dict[str, bool]()
        for name, guard in guards.items():
            answered = guard.answer(encode(query), ignore_progress)
            collected.add(name, open_release(query, answered.sealed)[0])
            replayed[name] = answered.replayed
        return collected.all(), replayed

    def test_who_answered_before_repeats_it_for_free_and_the_union_grows(self, tmp_path: Path) -> None:
        with ExitStack() as stack:
            guards = {name: self.guard(tmp_path / name, stack) for name in ("a", "b", "c")}
            query = local_query(4.0)
            early, _ = self.ask({name: guards[name] for name in ("a", "b")}, query)
            later, replayed = self.ask(guards, query)
            assert replayed == {"a": True, "b": True, "c": False}
            assert len(later.parts) == 3
            for before, after in zip(early.parts, later.parts, strict=False):
                assert all((before[name] == after[name]).all() for name in before)
            assert [guard.budget().releases for guard in guards.values()] == [2, 2, 2]
            assert len({guard.budget().epsilon_spent for guard in guards.values()}) == 1

    def test_more_images_later_are_free_and_begin_with_other_noise_of_the_same_statistics(self, tmp_path: Path) -> None:
        with ExitStack() as stack:
            guard = self.guard(tmp_path / "a", stack)
            self.ask({"a": guard}, local_query(4.0))
            spent = guard.budget().epsilon_spent
            many, _ = self.ask({"a": guard}, of_more(local_query(4.0), 9))
            assert many.parts[0]["images"].shape == (3, 9, 8, 8, 1)
            assert guard.budget().epsilon_spent == spent

    def test_more_images_of_spatial_statistics_are_free_in_two_stages(self, tmp_path: Path) -> None:
        with ExitStack() as stack:
            guard = self.guard(tmp_path / "a", stack)
            query = spatial_query(4.0)
            few, _ = self.ask({"a": guard}, query)
            spent = guard.budget().epsilon_spent
            assert few.parts[0]["soft_labels"].shape == (3, 2, 3)
            assert spent == pytest.approx(epsilon([query.event()], DELTA))
            self.ask({"a": guard}, of_more(query, 5))
            assert guard.budget().epsilon_spent == spent

    def guard(self, folder: Path, stack: ExitStack) -> Guard:
        folder.mkdir()
        ledger = stack.enter_context(closing(named_ledger(folder)))
        records = toy_records(seed=ord(folder.name))
        return image_guard(ledger, MECHANISMS, epsilon=3.0, name=folder.name, records=records)


def named_ledger(folder: Path) -> Ledger:
    return Ledger.open(folder / "ledger.db", folder.name, load_or_create(folder / "receipts.key"))


def test_silos_have_seeds_of_their_own() -> None:
    seeds = [own_seed(seed, silo) for seed in range(3) for silo in ("a", "b")]
    assert len(set(seeds)) == 6
    assert own_seed(0, "a") == own_seed(0, "a")


def test_a_ledger_of_images_opens_again(tmp_path: Path) -> None:
    with closing(open_ledger(tmp_path)) as ledger:
        sealed = image_guard(ledger, MECHANISMS, epsilon=3.0).answer(encode(local_query()), ignore_progress).sealed
        assert len(sealed) < 1500, "a byte for each of 387 values, and the receipt"
    with closing(open_ledger(tmp_path)) as ledger:
        assert ledger.spent("default").releases == 2
