"""NDPDC and Dosser: what they ask, what they make of the answers, and what they never need to know."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.entropies import SeededEntropy
from support.neighbours import nearest_neighbour_accuracy

from silosynth.common.accounting import epsilon, rdp_epsilon
from silosynth.common.auxiliary import encode_records
from silosynth.common.config import parse
from silosynth.common.datasets import Records, load
from silosynth.common.errors import ConfigError
from silosynth.common.events import merge
from silosynth.common.partition import partition
from silosynth.common.queries import FeatureSums
from silosynth.common.schema import Schema
from silosynth.common.signals import Signals
from silosynth.deploy.inprocess import InProcess
from silosynth.server.recipes import feature_signals, recipe_named
from silosynth.server.recipes.base import Ask, Product, Summed, Task, drive
from silosynth.server.recipes.dosser import Dosser
from silosynth.server.recipes.feature_signals import Evidence, proportional_sizes
from silosynth.server.recipes.ndpdc import Ndpdc
from silosynth.server.recipes.outlook import Crowd
from silosynth.server.synthesis.enlarging import enlarged_quarters
from silosynth.server.synthesis.matching import Matcher

DELTA = 1e-5
CPU = torch.device("cpu")
QUICK = {"signals": 30, "sampling_probability": 0.5, "records_per_class": 2, "width": 8, "augmentation": "crop,scale"}
RECIPES = {"ndpdc": (Ndpdc(), QUICK), "dosser": (Dosser(), QUICK | {"steps": 200})}


@pytest.fixture(scope="module")
def train() -> Records:
    return load("digits", split="train")


def table(count: int) -> Records:
    """Three classes around three corners."""
    generator = np.random.default_rng(3)
    labels = generator.integers(0, 3, count)
    features = np.eye(3, 6)[labels] - 0.5 + generator.normal(0, 0.2, (count, 6))
    return Records(features.astype(np.float32), labels, Schema((6,), 3))


class Watched:
    """A federation that remembers what it was asked."""

    def __init__(self, silos: list[Records], seed: int = 0) -> None:
        self._federation, self.asked = InProcess(silos, SeededEntropy(seed)), list[FeatureSums]()

    def ask(self, ask: Ask) -> Summed:
        assert isinstance(ask.query, FeatureSums)
        self.asked.append(ask.query)
        return self._federation.ask(ask)


def run(name: str, silos: list[Records], budget: float, **parameters: Any) -> Product:
    recipe, quick = RECIPES[name]
    task = Task(silos[0].schema, budget, DELTA)
    return drive(recipe.steps(task, recipe.parameters(**quick | parameters)), Watched(silos).ask)


@pytest.mark.parametrize("name", RECIPES)
class TestBoth:
    def test_ask_for_what_they_announced_within_the_budget(self, name: str, train: Records) -> None:
        recipe, quick = RECIPES[name]
        task, parameters, federation = Task(train.schema, 2.0, DELTA), recipe.parameters(**quick), Watched([train])
        drive(recipe.steps(task, parameters), federation.ask)
        events = [query.event() for query in federation.asked]
        assert events == recipe.events(task, parameters, federation.asked[0].noise_multiplier)
        assert 0.97 * 2 < epsilon(events, DELTA) <= 2

    def test_rounds_ask_for_the_same_signals(self, name: str, train: Records, monkeypatch: pytest.MonkeyPatch) -> None:
        (recipe, quick), federation = RECIPES[name], Watched([train])
        monkeypatch.setattr(feature_signals, "_VALUES_A_QUERY", 13 * 10 * 33)
        task, parameters = Task(train.schema, math.inf, DELTA), recipe.parameters(**quick)
        product = drive(recipe.steps(task, parameters), federation.ask)
        assert [(query.first, query.signals) for query in federation.asked] == [(0, 13), (13, 13), (26, 4)]
        assert merge(recipe.events(task, parameters, 0.0)) == merge(query.event() for query in federation.asked)
        assert np.isfinite(product.features).all()

    def test_make_records_of_every_class_within_the_box(self, name: str, train: Records) -> None:
        for records in (train, table(300)):
            product = run(name, [records], 2.0)
            assert np.bincount(product.labels).tolist() == [2] * records.schema.classes
            assert product.records(records.schema).schema == records.schema
            assert np.abs(product.features).max() <= 1

    def test_bear_empty_classes_and_tiny_silos(self, name: str, train: Records) -> None:
        without_threes = train.take(np.flatnonzero(train.labels != 3)[:40])
        tiny = [without_threes.take(np.array([0])), without_threes.take(np.array([], dtype=np.int64)), without_threes]
        for budget in (0.1, math.inf):
            assert np.isfinite(run(name, tiny, budget).features).all()

    def test_asked_again_they_ask_and_make_the_same(self, name: str, train: Records) -> None:
        recipe, quick = RECIPES[name]
        federations = [Watched([train], seed=5) for _ in range(2)]
        task, parameters = Task(train.schema, 1.0, DELTA), recipe.parameters(**quick)
        one, same = (drive(recipe.steps(task, parameters), federation.ask) for federation in federations)
        assert federations[0].asked == federations[1].asked
        np.testing.assert_array_equal(one.features, same.features)

    def test_two_copies_of_a_silo_say_what_one_says(self, name: str) -> None:
        """Silos may drop out: sums and counts drop out together, so nothing depends on how many answered."""
        records = table(300)
        one, two = (run(name, [records] * copies, math.inf, sampling_probability=1.0) for copies in (1, 2))
        np.testing.assert_allclose(one.features, two.features, atol=1e-3)

    def test_learn_tables_and_images(self, name: str, train: Records) -> None:
        silos = [train.take(indices) for indices in partition("iid", train.labels, 3, seed=0)]
        learned = run(name, silos, 8.0, signals=100, records_per_class=5)
        assert nearest_neighbour_accuracy(learned, load("digits", split="test")) > 0.6
        assert nearest_neighbour_accuracy(run(name, [table(600)], 8.0, signals=100), table(200)) > 0.85

    def test_refuse_too_little_noise(self, name: str, train: Records) -> None:
        with pytest.raises(ConfigError, match=r"noise_multiplier = 0\.5 spends epsilon .*, the run has 1"):
            run(name, [train], 1.0, noise_multiplier=0.5)


@pytest.mark.parametrize(
    ("shape", "smallest_class", "expected"),
    [((28, 28, 1), 5421, 6.114), ((28, 28, 1), 6000, 5.443), ((32, 32, 3), 5000, 6.713)],
)
def test_ndpdcs_settings_cost_what_the_paper_says(shape: tuple[int, ...], smallest_class: int, expected: float) -> None:
    """MNIST, Fashion-MNIST and CIFAR-10."""
    recipe = Ndpdc()
    parameters = recipe.parameters(signals=10_000, sampling_probability=50 / smallest_class, width=128)
    events = recipe.events(Task(Schema(shape, 10), 10.0, DELTA), parameters, 1.0)
    assert rdp_epsilon(events, DELTA) == pytest.approx(expected, abs=2e-3)


def test_dossers_settings_cost_what_the_paper_says() -> None:
    recipe = Dosser()
    parameters = recipe.parameters(signals=10_000, sampling_probability=0.01, width=128, projected=500)
    events = recipe.events(Task(Schema((32, 32, 3), 10), 1.0, 5e-6), parameters, 4.297)
    assert rdp_epsilon(events, 5e-6) == pytest.approx(1.0, abs=1e-2)
    assert epsilon(events, 5e-6) < 1


@pytest.mark.parametrize("name", RECIPES)
def test_nothing_is_asked_differently_because_of_what_silos_hold(name: str, train: Records) -> None:
    """Rates, networks and noise follow from public numbers, whatever the answers say."""
    recipe, quick = RECIPES[name]
    few = train.take(np.flatnonzero(train.labels < 3)[:50])
    asked = []
    for silos in ([train], [few], [train, few]):
        federation = Watched(silos)
        drive(recipe.steps(Task(train.schema, 1.0, DELTA), recipe.parameters(**quick)), federation.ask)
        asked.append(federation.asked)
    assert asked[0] == asked[1] == asked[2]


class TestDosser:
    def test_more_steps_cost_nothing(self, train: Records) -> None:
        recipe = Dosser()
        task = Task(train.schema, 1.0, DELTA)
        few, many = (recipe.events(task, recipe.parameters(**QUICK | {"steps": steps}), 2.0) for steps in (1, 10**6))
        assert few == many

    def test_projects_with_procedural_or_given_records(self, train: Records, tmp_path: Path) -> None:
        file = tmp_path / "auxiliary.safetensors"
        file.write_bytes(encode_records(train.features[:100]))
        for auxiliary in (None, file):
            product = run("dosser", [train], 4.0, projected=9, auxiliary=auxiliary)
            assert np.isfinite(product.features).all()

    def test_projects_with_an_earlier_release_whose_cost_is_composed(self, train: Records, tmp_path: Path) -> None:
        """One ledger holds both: together they cost less than the sum of their epsilons."""
        earlier, federation = recipe_named("ldpdc"), InProcess([train], SeededEntropy(1))
        task = Task(train.schema, 0.5, DELTA)
        made = drive(earlier.steps(task, earlier.parameters()), federation.ask).records(train.schema)
        file = tmp_path / "train.npz"
        np.savez(file, images=made.features, labels=made.labels)
        run("dosser", [train], 0.5, projected=9, auxiliary=file)
        recipe = Dosser()
        parameters = recipe.parameters(**QUICK, projected=9, auxiliary=file)
        spent = [
            *earlier.events(
                task, earlier.parameters(), next(earlier.steps(task, earlier.parameters())).noise_multiplier
            ),
            *recipe.events(task, parameters, parameters.noise_for(task)),
        ]
        assert 0.5 < epsilon(spent, DELTA) < 0.95

    def test_projects_with_what_a_generator_made_of_the_same_budget(self, train: Records) -> None:
        recipe, federation = Dosser(), Watched([train])
        chosen = QUICK | {"projected": 9, "generator": {"method": "merf", "features": 20, "generator_steps": 3}}
        task, parameters = Task(train.schema, 1.0, DELTA), recipe.parameters(**chosen)
        made = drive(recipe.steps(task, parameters), federation.ask)
        assert np.isfinite(made.features).all()
        first, *signals = federation.asked
        assert first.network == "fourier"
        assert all(query.auxiliary for query in signals)
        spent = epsilon([query.event() for query in federation.asked], DELTA)
        assert 0.99 <= spent <= 1.0
        assert len(recipe.outlook(task, parameters, Crowd(1, 500)).queries) == len(federation.asked)

    @pytest.mark.parametrize(
        ("chosen", "complaint"),
        [
            ({"generator_share": 0.2}, "no generator"),
            ({"generator": {"method": "merf"}}, "set projected"),
            ({"generator": {"method": "merf"}, "projected": 9, "noise_multiplier": 1.0}, "leave out"),
        ],
    )
    def test_takes_no_setting_that_would_do_nothing(self, chosen: dict[str, Any], complaint: str) -> None:
        with pytest.raises(ConfigError, match=complaint):
            parse(Dosser.parameters, chosen, "test")

    @pytest.mark.parametrize("content", [b"", b"PK nothing"])
    def test_names_a_release_that_is_none(self, content: bytes, train: Records, tmp_path: Path) -> None:
        file = tmp_path / "train.npz"
        file.write_bytes(content)
        with pytest.raises(ConfigError, match=r"train\.npz: is no release's"):
            run("dosser", [train], 4.0, projected=9, auxiliary=file)

    def test_names_an_auxiliary_file_that_is_missing(self, train: Records, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"nothing\.safetensors: cannot be read"):
            run("dosser", [train], 4.0, projected=9, auxiliary=tmp_path / "nothing.safetensors")

    def test_enlarged_images_are_four_times_as_many(self, train: Records) -> None:
        assert np.bincount(run("dosser", [train], 4.0, enlarged=True).labels).tolist() == [8] * 10

    def test_classes_may_be_as_large_as_noisy_counts_say(self) -> None:
        records = table(300)
        rare = records.take(np.flatnonzero((records.labels > 0) | (np.arange(300) % 4 == 0)))
        sizes = np.bincount(run("dosser", [rare], math.inf, records_per_class=10, proportional=True).labels)
        assert sizes.sum() == 30
        np.testing.assert_allclose(sizes / 30, np.bincount(rare.labels) / len(rare), atol=0.05)
        assert proportional_sizes(torch.tensor([0.0, 1.0, 999.0]), 10) == [1, 1, 8]

    def test_rows_cannot_be_enlarged(self) -> None:
        with pytest.raises(ConfigError, match="enlarged"):
            run("dosser", [table(50)], 4.0, enlarged=True)


def test_quarters_are_enlarged_in_place() -> None:
    image = torch.zeros(2, 1, 4, 6)
    image[1, 0, :2, 3:] = 1
    quarters = enlarged_quarters(image)
    assert quarters.shape == (8, 1, 4, 6)
    assert quarters.mean(dim=(1, 2, 3)).tolist() == [0, 0, 0, 0, 0, 1, 0, 0]
    assert enlarged_quarters(torch.ones(1, 3, 5, 7)).shape == (4, 3, 5, 7)


class TestTheLoss:
    schema = Schema((4,), 2)
    query = FeatureSums(
        schema=schema,
        noise_multiplier=0.0,
        first=0,
        signals=1,
        sampling_probability=1.0,
        network="linear",
        width=3,
        seed=0,
        augmentation="",
        projected=0,
        auxiliary="",
        clip=0.5,
        count_weight=0.5,
    )

    def test_vanishes_for_the_records_themselves_and_has_its_gradient_elsewhere(self) -> None:
        rows = torch.rand(6, 4, generator=torch.Generator().manual_seed(0)) * 2 - 1
        records = Records(rows.numpy(), np.array([0, 0, 0, 1, 1, 1]), self.schema)
        evidence = Evidence(CPU)
        evidence.add(self.query, InProcess([records]).ask(Ask(self.query)))
        assert evidence.drawn().tolist() == pytest.approx([3, 3], rel=0.02)
        matcher = Matcher(Signals(self.query, {}.__getitem__, CPU), self.query.clip, [3, 3])
        assert float(matcher.loss(rows, 0, evidence.sums(0), evidence.drawn())) < 0.1
        moved = (rows + 0.3).requires_grad_()
        loss = matcher.loss(moved, 0, evidence.sums(0), evidence.drawn())
        loss.backward()
        nearer = matcher.loss(moved.detach() - 1e-5 * moved.grad, 0, evidence.sums(0), evidence.drawn())
        assert float(nearer) < float(loss.detach())

    def test_counts_are_pooled_over_signals_and_rounds(self) -> None:
        """One signal's counts hardly matter; the mean over all does."""
        evidence = Evidence(CPU)
        one_record = self.query.count_step() * self.query.grid()
        for first, counts in ((0, [[10.0, 30.0], [30.0, 10.0]]), (2, [[20.0, 20.0]])):
            query = replace(self.query, first=first, signals=len(counts))
            blocks = {"sums": np.zeros((len(counts), 2, 3)), "counts": np.array(counts) * one_record}
            evidence.add(query, Summed(blocks, 1, query.plan()))
        assert evidence.drawn().tolist() == pytest.approx([20, 20])
