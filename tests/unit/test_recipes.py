"""Recipes in-process: what they ask, what they make, and that they never ask for more than the run allows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.artifacts import ARTIFACT, CONTENT, ReadingMechanism, naming
from support.entropies import SeededEntropy

from silosynth.client.mechanisms import MECHANISMS
from silosynth.common.accounting import calibrate, epsilon
from silosynth.common.config import parse
from silosynth.common.datasets import Records, load
from silosynth.common.errors import ConfigError, QueryError
from silosynth.common.events import merge
from silosynth.common.partition import partition
from silosynth.common.queries import ClassCounts, Mixtures, Query, charges_of
from silosynth.common.schema import Schema
from silosynth.deploy.inprocess import InProcess
from silosynth.server.recipes import RECIPES, recipe_named
from silosynth.server.recipes.base import Ask, Product, Steps, Summed, Task, drive

DELTA = 1e-5
TABLE = Schema((6,), 3)
# Small settings for recipes that optimize, since what is tested here is no accuracy.
BRIEF: dict[str, dict[str, Any]] = {
    "dosser": {"signals": 20, "width": 8, "records_per_class": 2, "sampling_probability": 0.3, "steps": 30},
    "dpgeng": {
        **{"generator": {"method": "merf", "generator_steps": 5, "features": 20}, "signals": 4},
        **{"extractors": 2, "extractor_steps": 2, "sampling_probability": 0.3},
        **{"expert_steps": 2, "steps": 3, "width": 4, "pool_per_class": 8, "records_per_class": 1},
    },
    "evolution": {"evolution_steps": 2, "candidates": 6, "lookahead": 2, "records_per_class": 2},
    "feddpsd": {"rounds": 2, "inputs": 16, "private_steps": 5, "student_steps": 5, "generator_steps": 1},
    "merf": {"generator_steps": 5, "features": 20, "records_per_class": 2},
    "ndpdc": {"signals": 20, "width": 8, "records_per_class": 2, "sampling_probability": 0.3},
    "sps": {"images_per_class": 2, "steps": 3},
}
CLASSIFYING = sorted(RECIPES.keys() - BRIEF.keys())
ONLY_IMAGES = {"dpgeng", "evolution", "sps"}


@pytest.fixture(scope="module")
def train() -> Records:
    return load("digits", split="train")


@pytest.fixture(scope="module")
def test() -> Records:
    return load("digits", split="test")


def table(count: int = 300) -> Records:
    """Three classes around three corners."""
    generator = np.random.default_rng(3)
    labels = generator.integers(0, 3, count)
    features = np.eye(3, 6)[labels] - 0.5 + generator.normal(0, 0.2, (count, 6))
    return Records(features.astype(np.float32), labels, TABLE)


def shards(records: Records, silos: int) -> list[Records]:
    return [records.take(indices) for indices in partition("iid", records.labels, silos, seed=0)]


def run(name: str, silos: list[Records], budget: float, seed: int = 0, **parameters: Any) -> Product:
    recipe = recipe_named(name)
    task = Task(silos[0].schema, budget, DELTA, seed)
    federation = InProcess(silos, SeededEntropy(seed))
    return drive(recipe.steps(task, recipe.parameters(**BRIEF.get(name, {}) | parameters)), federation.ask)


def own_accuracy(product: Product, test: Records) -> float:
    assert product.classifier is not None
    features = np.concatenate([features for features, _ in test.batches()])
    return float((product.classifier(features) == test.labels).mean())


def watched(ask: Callable[[Ask], Summed], asked: list[Query]) -> Callable[[Ask], Summed]:
    def answer(step: Ask) -> Summed:
        asked.append(step.query)
        return ask(step)

    return answer


@pytest.mark.parametrize("name", sorted(RECIPES))
class TestEveryRecipe:
    @pytest.mark.parametrize("kind", ["images", "table"])
    def test_makes_records_of_every_class_within_the_box(self, name: str, kind: str, train: Records) -> None:
        records = train if kind == "images" else table()
        if kind == "table" and name in ONLY_IMAGES:
            with pytest.raises(ConfigError, match="choose another recipe"):
                run(name, [records], 2.0)
            return
        product = run(name, shards(records, 3), 2.0)
        published = product.records(records.schema)  # validates shapes and labels
        assert set(published.labels) == set(range(records.schema.classes))
        assert product.features.dtype == np.float32
        assert np.abs(product.features).max() <= 1

    @pytest.mark.parametrize("budget", [0.5, 4.0])
    def test_asks_for_what_it_announced_and_fits_the_budget(self, name: str, budget: float, train: Records) -> None:
        recipe, asked = recipe_named(name), list[Query]()
        task, parameters = Task(train.schema, budget, DELTA), recipe.parameters(**BRIEF.get(name, {}))
        drive(recipe.steps(task, parameters), watched(InProcess([train], SeededEntropy()).ask, asked))
        events = charges_of(asked)
        noise = calibrate(lambda z: recipe.events(task, parameters, z), budget, DELTA)
        assert merge(events) == merge(recipe.events(task, parameters, noise))
        assert 0.97 * budget < epsilon(events, DELTA) <= budget

    def test_asked_again_it_asks_and_makes_the_same(self, name: str, train: Records) -> None:
        recipe, asked = recipe_named(name), list[Query]()
        task, parameters = Task(train.schema, 1.0, DELTA), recipe.parameters(**BRIEF.get(name, {}))
        products = [
            drive(recipe.steps(task, parameters), watched(InProcess([train], SeededEntropy(5)).ask, asked))
            for _ in range(2)
        ]
        assert asked[: len(asked) // 2] == asked[len(asked) // 2 :]
        np.testing.assert_array_equal(products[0].features, products[1].features)

    @pytest.mark.parametrize("budget", [0.1, 1.0, math.inf])
    def test_bears_an_empty_class_and_tiny_silos(self, name: str, budget: float, train: Records) -> None:
        without_threes = train.take(np.flatnonzero(train.labels != 3)[:40])
        tiny = [without_threes.take(np.array([0])), without_threes.take(np.array([], dtype=np.int64)), without_threes]
        product = run(name, tiny, budget)
        assert np.isfinite(product.features).all()
        assert (product.labels == 3).any()


@pytest.mark.parametrize("name", CLASSIFYING)
class TestRecipesThatClassify:
    def test_without_noise_it_classifies_well(self, name: str, train: Records, test: Records) -> None:
        assert own_accuracy(run(name, [train], math.inf), test) > 0.86
        assert own_accuracy(run(name, [table()], math.inf), table(200)) > 0.9

    def test_two_copies_of_a_silo_say_what_one_says(self, name: str, train: Records) -> None:
        """Silos may drop out: sums and counts drop out together, so nothing depends on how many answered."""
        one, two = (run(name, [train] * copies, math.inf, **_no_coins(name)) for copies in (1, 2))
        np.testing.assert_allclose(one.features, two.features, atol=1e-3)


def _no_coins(name: str) -> dict[str, Any]:
    return {"sampling_probability": 1.0} if name == "ldpdc" else {}


def test_prototypes_of_one_holder_reach_the_target_at_epsilon_one(train: Records, test: Records) -> None:
    accuracies = [own_accuracy(run("prototypes", [train], 1.0, seed), test) for seed in range(8)]
    assert np.mean(accuracies) > 0.86


@pytest.mark.parametrize("name", CLASSIFYING)
def test_five_silos_get_far_above_chance(name: str, train: Records, test: Records) -> None:
    assert own_accuracy(run(name, shards(train, 5), 4.0), test) > 0.75


def test_ridge_without_noise_is_least_squares(train: Records) -> None:
    from sklearn.linear_model import RidgeClassifier

    model = run("ridge", [train], math.inf, clip=1.0, center=0.0).models["ridge"]
    features = np.concatenate([features for features, _ in train.batches()])
    reference = RidgeClassifier(alpha=1e-6 * len(train) * 64).fit(features, train.labels)
    scores = features @ model["weights"].T + model["bias"]
    assert (scores.argmax(axis=1) == reference.predict(features)).mean() > 0.995


class TestLdpdc:
    def paper(self, **others: Any) -> dict[str, Any]:
        mnist = {"sampling_probability": 50 / 5421, "center": 0.0, "clip": 1.0, "count_weight": 1e-3, "denoise": False}
        return {"mixtures": 50, "noise_multiplier": 1.0, **mnist, **others}

    def test_the_papers_setting_is_within_reach(self) -> None:
        recipe = recipe_named("ldpdc")
        task = Task(Schema((28, 28, 1), 10), 0.55, DELTA)
        query = next(recipe.steps(task, recipe.parameters(**self.paper())))
        assert isinstance(query, Mixtures)
        assert (query.mixtures, query.noise_multiplier, query.center, query.clip) == (50, 1.0, 0.0, 28.0)
        assert query.plan().noise_std == pytest.approx(28.0, rel=1e-5)
        assert epsilon([query.event()], DELTA) == pytest.approx(0.54, abs=0.01)

    def test_a_noise_multiplier_beyond_the_runs_budget_is_refused(self) -> None:
        recipe = recipe_named("ldpdc")
        task = Task(Schema((28, 28, 1), 10), 0.5, DELTA)
        with pytest.raises(ConfigError, match=r"spends epsilon 0\.5\d+, the run has 0\.5"):
            next(recipe.steps(task, recipe.parameters(**self.paper())))

    def test_empty_samples_are_released_as_pure_noise(self, train: Records) -> None:
        product = run("ldpdc", [train], 1.0, **self.paper(sampling_probability=1e-6))
        assert np.isfinite(product.features).all()

    def test_the_divisor_is_pooled_over_mixtures(self, train: Records) -> None:
        """Each mixture by its own noisy count would scatter its brightness; and a realized count is not released."""
        recipe = recipe_named("ldpdc")
        parameters = recipe.parameters(denoise=False, mixtures=4, sampling_probability=0.5)
        steps = recipe.steps(Task(train.schema, math.inf, DELTA), parameters)
        summed = InProcess([train], SeededEntropy()).ask(next(steps))
        wild = np.abs(summed.blocks["counts"] * np.array([0.1, 1.9, 0.4, 1.6])[:, None])
        products = []
        for counts in (wild, np.broadcast_to(wild.mean(axis=0), wild.shape)):
            steps = recipe.steps(Task(train.schema, math.inf, DELTA), parameters)
            next(steps)
            with pytest.raises(StopIteration) as stop:
                steps.send(replace(summed, blocks={**summed.blocks, "counts": counts}))
            products.append(stop.value.value)
        np.testing.assert_allclose(products[0].features, products[1].features, atol=1e-6)

    def test_denoising_brings_the_records_nearer_to_the_class_means(self, train: Records) -> None:
        true_means = run("prototypes", [train], math.inf).features
        distances = {}
        for denoise in (False, True):
            product = run("ldpdc", shards(train, 5), 2.0, denoise=denoise)
            distances[denoise] = np.square(product.features - true_means[product.labels]).mean()
        assert distances[True] < distances[False] / 2


def test_an_unknown_recipe_is_told_the_names() -> None:
    with pytest.raises(ConfigError, match=r"'dreams'.*dosser, dpgeng, evolution, feddpsd, ldpdc, merf, ndpdc, proto"):
        recipe_named("dreams")


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("prototypes", {"mixtures": 3}),
        ("prototypes", {"clip": 0}),
        ("ldpdc", {"mixtures": 0}),
        ("ldpdc", {"sampling_probability": 1.5}),
        ("ldpdc", {"center": "middle"}),
        ("ridge", {"records_per_class": -1}),
    ],
)
def test_wrong_parameters_are_named(name: str, parameters: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(parameters))):
        parse(recipe_named(name).parameters, parameters, "run.toml")


def test_a_step_may_bring_the_artifacts_of_its_query(train: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    reading = ReadingMechanism()
    monkeypatch.setitem(MECHANISMS, "class_counts", reading)  # type: ignore[arg-type]
    naming(monkeypatch)
    counts = ClassCounts(schema=train.schema, noise_multiplier=1.0)

    def steps() -> Steps:
        yield Ask(counts, {ARTIFACT: CONTENT})
        yield counts
        return Product.of(np.zeros((train.schema.classes, train.schema.dimension)), train.schema)

    drive(steps(), InProcess([train], device="cuda").ask)
    assert reading.read == [CONTENT, CONTENT]
    assert reading.devices == ["cuda", "cuda"]
    with pytest.raises(QueryError, match=f"{ARTIFACT} has another digest"):
        Ask(counts, {ARTIFACT: CONTENT[1:]})
