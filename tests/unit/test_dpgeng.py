"""DP-MERF and DP-GENG: what they ask, how the budget is divided, what each step is good for."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.entropies import SeededEntropy
from support.guards import bench
from support.neighbours import nearest_neighbour_accuracy

from silosynth.client.mechanisms.gradient_sums import gradient_sums
from silosynth.common.accounting import calibrate, epsilon, rdp_epsilon
from silosynth.common.datasets import Records, load
from silosynth.common.errors import ConfigError, QueryError
from silosynth.common.events import Event, SampledGaussian, merge
from silosynth.common.networks.extractors import Network, draw_network
from silosynth.common.networks.shapes import ConvNetShape
from silosynth.common.networks.weights import decode_networks, encode_networks, given_network
from silosynth.common.queries import FeatureSums, GradientSums, SufficientStatistics
from silosynth.common.schema import Schema
from silosynth.common.signals import Signals
from silosynth.deploy.inprocess import InProcess
from silosynth.server.generators.base import Pool
from silosynth.server.recipes import recipe_named
from silosynth.server.recipes.base import Ask, Product, Summed, Task, drive
from silosynth.server.recipes.dpgeng import DpGeng
from silosynth.server.recipes.guided_parameters import GuidedParameters, Noises
from silosynth.server.recipes.outlook import Crowd
from silosynth.server.recipes.privacy_split import sampled_noise, shares_of
from silosynth.server.recipes.workplace import Workplace
from silosynth.server.synthesis.enlarging import enlarged_quarters
from silosynth.server.synthesis.expert import Expert
from silosynth.server.synthesis.pool_training import PoolTraining
from silosynth.server.synthesis.selection import any_of, packed, typical

DELTA = 1e-5
DIGITS = Schema((8, 8, 1), 10)
BRIEF: dict[str, Any] = {
    **{"generator": {"method": "merf", "generator_steps": 150, "features": 500}},
    **{"pool_per_class": 40, "extractors": 2, "extractor_steps": 40},
    **{"signals": 20, "sampling_probability": 0.3, "width": 16, "steps": 60, "expert_steps": 4},
    **{"records_per_class": 4, "augmentation": "crop,scale"},
}

QUICK = BRIEF | {"generator": BRIEF["generator"] | {"generator_steps": 5}, "extractor_steps": 3, "steps": 3}


@pytest.fixture(scope="module")
def train() -> Records:
    return load("digits", split="train")


@pytest.fixture(scope="module")
def test() -> Records:
    return load("digits", split="test")


class Watched:
    def __init__(self, silos: list[Records]) -> None:
        self._federation, self.asked = InProcess(silos, SeededEntropy(0)), list[Ask]()

    def ask(self, ask: Ask) -> Summed:
        self.asked.append(ask)
        return self._federation.ask(ask)


def run(name: str, silos: list[Records], budget: float, **chosen: Any) -> tuple[Product, list[Ask]]:
    recipe, federation = recipe_named(name), Watched(silos)
    task = Task(silos[0].schema, budget, DELTA)
    return drive(recipe.steps(task, recipe.parameters(**chosen)), federation.ask), federation.asked


class TestFigures:
    @pytest.mark.parametrize(("budget", "mu"), [(10, 2.0004), (20, 3.4478), (1, 0.2681)])
    def test_mu_of_a_budget(self, budget: float, mu: float) -> None:
        z = calibrate(lambda noise: [SampledGaussian(noise)], budget, DELTA)
        assert 1 / z == pytest.approx(mu, rel=2e-3)
        assert epsilon([SampledGaussian(1 / mu)], DELTA) == pytest.approx(budget, rel=1e-3)

    @pytest.mark.parametrize(("sigma", "exact", "rdp"), [(5.0, 0.7255, 0.980), (0.5, 9.997, 11.60)])
    def test_merf(self, sigma: float, exact: float, rdp: float) -> None:
        assert epsilon([SampledGaussian(sigma)], DELTA) == pytest.approx(exact, rel=1e-3)
        assert exact < rdp_epsilon([SampledGaussian(sigma)], DELTA) <= rdp * 1.001


class TestSplit:
    def test_shares_compose_as_gaussians_do(self) -> None:
        shares = shares_of({"a": 3.0, "b": 1.0, "c": 0.0})
        assert shares == pytest.approx({"a": math.sqrt(0.75), "b": 0.5})

    def test_sampled_noise_is_the_theorem_the_right_way_up(self) -> None:
        """More steps or a larger rate want more noise; the printed form gives less."""
        few, many = (sampled_noise(1.0, 0.05, count) for count in (100, 1000))
        assert few < many
        assert sampled_noise(1.0, 0.05, 100) < sampled_noise(1.0, 0.1, 100)
        mu = math.sqrt(100 * 0.05**2 * math.expm1(1 / few**2))
        assert mu == pytest.approx(1.0)

    def test_a_step_that_is_left_out_costs_nothing(self) -> None:
        noises = Noises.of(GuidedParameters(matching_share=0.0, guided=False), 2.0)
        assert noises == Noises(2.0, None, None)

    def test_no_noise_where_the_budget_is_infinite(self) -> None:
        assert Noises.of(GuidedParameters(), 0.0) == Noises(0.0, 0.0, 0.0)

    @pytest.mark.parametrize("count", [12, pytest.param(1000, marks=pytest.mark.slow)])
    def test_any_split_stays_within_the_budget(self, count: int) -> None:
        dice = np.random.default_rng(count)
        for _ in range(count):
            budget = float(np.exp(dice.uniform(-1, 2.5)))
            spent = epsilon(calibrated_events(random_split(dice), budget), DELTA)
            assert 0.99 * budget <= spent <= budget


def calibrated_events(parameters: GuidedParameters, budget: float) -> list[Event]:
    def events(z: float) -> list[Event]:
        return DpGeng().events(Task(DIGITS, budget, DELTA), parameters, z)

    return events(calibrate(events, budget, DELTA))


def random_split(dice: np.random.Generator) -> GuidedParameters:
    shares = dice.dirichlet(np.ones(3))
    return GuidedParameters(
        generator_share=max(shares[0], 1e-3),
        matching_share=shares[1],
        expert_share=shares[2],
        signals=int(dice.integers(1, 300)),
        expert_steps=int(dice.integers(1, 100)),
        sampling_probability=float(dice.uniform(0.01, 1)),
        width=2,
    )


class TestMerf:
    @pytest.mark.parametrize("embedding", ["fourier", "backbone"])
    def test_learns_digits_from_one_question(self, embedding: str, train: Records, test: Records) -> None:
        made, asked = run("merf", [train], 8.0, embedding=embedding, generator_steps=150, records_per_class=10)
        assert isinstance(asked[0].query, FeatureSums if embedding == "fourier" else SufficientStatistics)
        assert len(asked) == 1
        assert epsilon([asked[0].query.event()], DELTA) <= 8.0
        assert nearest_neighbour_accuracy(made, test) > 0.6
        assert "generator" in made.models

    def test_learns_a_table(self) -> None:
        dice = np.random.default_rng(3)
        labels = dice.integers(0, 3, 600)
        rows = np.eye(3, 6)[labels] - 0.5 + dice.normal(0, 0.2, (600, 6))
        records = Records(rows.astype(np.float32), labels, Schema((6,), 3))
        made, _ = run("merf", [records], 8.0, features=100, generator_steps=150, records_per_class=10)
        assert nearest_neighbour_accuracy(made, records) > 0.8

    def test_a_network_does_not_look_at_rows(self) -> None:
        recipe = recipe_named("merf")
        steps = recipe.steps(Task(Schema((6,), 3), 1.0, DELTA), recipe.parameters(embedding="backbone"))
        with pytest.raises(ConfigError, match="fourier"):
            next(steps)

    def test_fourier_features_are_as_long_as_one_whatever_the_record(self) -> None:
        query = FeatureSums(
            schema=DIGITS,
            noise_multiplier=1.0,
            **{"first": 0, "signals": 1, "sampling_probability": 1.0, "network": "fourier", "width": 200, "seed": 1},
            **{"augmentation": "", "projected": 0, "auxiliary": "", "clip": 1.0, "count_weight": 0.1},
            length_scale=0.7,
        )
        signal = Signals(query, {}.__getitem__, torch.device("cpu"))[0]
        lengths = signal.features(torch.randn(20, 1, 8, 8)).norm(dim=1)
        assert lengths.numpy() == pytest.approx(1.0, abs=1e-5)


class TestGeng:
    def test_asks_for_what_it_announced_within_the_budget(self, train: Records) -> None:
        recipe, task = DpGeng(), Task(train.schema, 8.0, DELTA)
        made, asked = run("dpgeng", [train], 8.0, **BRIEF)
        kinds = [type(ask.query) for ask in asked]
        assert kinds == [FeatureSums, FeatureSums, *[GradientSums] * BRIEF["expert_steps"]]
        spent = epsilon([ask.query.event() for ask in asked], DELTA)
        assert 0.99 * 8.0 <= spent <= 8.0
        planned = calibrate(lambda z: recipe.events(task, GuidedParameters(**BRIEF), z), 8.0, DELTA)
        assert merge(ask.query.event() for ask in asked) == merge(
            recipe.events(task, GuidedParameters(**BRIEF), planned)
        )
        assert len(made.features) == 40

    def test_learns_digits(self, train: Records, test: Records) -> None:
        made, _ = run("dpgeng", [train.take(np.arange(start, len(train), 2)) for start in (0, 1)], 8.0, **BRIEF)
        assert nearest_neighbour_accuracy(made, test) > 0.7

    @pytest.mark.parametrize(
        ("left_out", "questions"),
        [
            ({"matching_share": 0.0, "guided": False}, 1),
            ({"matching_share": 0.0, "expert_share": 0.0}, 1),
            ({"guided": False}, 2),
            ({"typical": False, "expert_share": 0.0}, 2),
            ({"packed": True}, 6),
        ],
    )
    def test_every_step_can_be_left_out(self, left_out: dict[str, Any], questions: int, train: Records) -> None:
        made, asked = run("dpgeng", [train], 8.0, **QUICK | left_out)
        assert len(asked) == questions
        assert np.isfinite(made.features).all()
        assert len(made.features) == (160 if left_out.get("packed") else 40)

    @pytest.mark.parametrize(("channels", "chosen", "parts"), [(1, None, 1), (3, None, 4), (1, True, 4), (3, False, 1)])
    def test_coloured_images_are_packed_unless_told_otherwise(
        self, channels: int, chosen: bool | None, parts: int
    ) -> None:
        assert GuidedParameters(packed=chosen).settled(Schema((32, 32, channels), 10)).parts == parts

    def test_few_images_at_once_move_all_of_them(self, train: Records) -> None:
        still, moved = (
            run(
                "dpgeng", [train], 8.0, **QUICK | {"guided": False, "steps": steps, "learning_rate": rate, "at_once": 1}
            )[0]
            for steps, rate in ((1, 1e-9), (20, 0.05))
        )
        assert len(moved.features) == len(still.features) == 40
        assert (np.abs(moved.features - still.features).reshape(40, -1).max(axis=1) > 1e-3).all()

    def test_hands_out_the_expert(self, train: Records, test: Records) -> None:
        made, _ = run("dpgeng", [train], 8.0, **BRIEF | {"steps": 1})
        assert made.classifier is not None
        assert (made.classifier(test.flat()) == test.labels).mean() > 0.5
        assert set(made.models) == {"generator", "expert"}

    def test_started_again_trains_no_network_again(self, train: Records, tmp_path: Path) -> None:
        recipe, chosen = DpGeng(), GuidedParameters(**QUICK)
        task = Task(train.schema, 8.0, DELTA, workplace=Workplace(tmp_path))
        written = []
        for _ in range(2):
            drive(recipe.steps(task, chosen), Watched([train]).ask)
            written.append({path: path.stat().st_mtime_ns for path in (tmp_path / "made").iterdir()})
        # Generator, pool, extractors, the expert as it begins and after every step.
        assert len(written[0]) == 2 + QUICK["extractors"] + 1 + QUICK["expert_steps"]
        assert written[0] == written[1]

    @pytest.mark.parametrize("wrong", [{"augmentation": "colour"}, {"expert_clip": 1e-7}])
    def test_what_is_wrong_with_later_questions_is_told_before_the_first(
        self, wrong: dict[str, Any], train: Records
    ) -> None:
        recipe = DpGeng()
        with pytest.raises((ConfigError, QueryError)):
            next(recipe.steps(Task(train.schema, 8.0, DELTA), GuidedParameters(**QUICK | wrong)))

    def test_more_signals_than_fit_a_query_are_asked_for_in_rounds(self, train: Records) -> None:
        recipe, chosen = DpGeng(), GuidedParameters(width=1024, signals=1000)
        queries = recipe.outlook(Task(train.schema, 8.0, DELTA), chosen, Crowd(1000, 5)).queries
        asked = [query for query in queries[1:] if isinstance(query, FeatureSums)]
        assert sum(query.signals for query in asked) == 1000
        assert all(query.layout().size <= 1 << 22 for query in asked)

    def test_a_pool_that_is_too_small_is_noticed_before_anybody_is_asked(self, train: Records) -> None:
        with pytest.raises(ConfigError, match="raise pool_per_class"):
            run("dpgeng", [train], 8.0, **QUICK | {"records_per_class": 11, "packed": True})

    def test_the_same_seed_asks_the_same(self, train: Records) -> None:
        first, second = (run("dpgeng", [train], 8.0, **QUICK)[1] for _ in range(2))
        assert [ask.query for ask in first] == [ask.query for ask in second]


def pool_of(records: Records, per_class: int) -> Pool:
    rows = np.concatenate([np.flatnonzero(records.labels == label)[:per_class] for label in range(10)])
    chosen = records.take(rows)
    images = torch.from_numpy(chosen.flat()).reshape(-1, 1, 8, 8)
    return Pool(images, torch.from_numpy(chosen.labels))


class TestParts:
    def test_packing_is_undone_by_enlarging(self) -> None:
        smooth = torch.linspace(-1, 1, 28).expand(8, 1, 28, 28).clone()
        assert packed(smooth).shape == (2, 1, 28, 28)
        assert enlarged_quarters(packed(smooth)).sub(smooth).abs().max() < 0.1

    def test_typical_records_are_the_pools_own_one_of_each_cluster(self, train: Records) -> None:
        pool = pool_of(train, 30)
        network = PoolTraining(DIGITS, 8, 5, "").network(pool, 0)
        chosen = typical(pool, network, 3, seed=0)
        whole = {image.numpy().tobytes() for image in pool.records}
        assert len(chosen) == 30
        assert all(image.numpy().tobytes() in whole for image in chosen)
        assert len(any_of(pool, 3, seed=0)) == 30

    def test_networks_learn_from_the_pool(self, train: Records) -> None:
        pool = pool_of(train, 60)
        network = PoolTraining(DIGITS, 16, 60, "crop").network(pool, 0)
        assert (network(pool.records).argmax(1) == pool.labels).float().mean() > 0.8

    def test_an_expert_prefers_records_of_their_class(self, train: Records) -> None:
        pool = pool_of(train, 60)
        expert = Expert(PoolTraining(DIGITS, 16, 60, "").network(pool, 0), pool, 1.0)
        right, wrong = (expert.loss(pool.records, labels) for labels in (pool.labels, (pool.labels + 1) % 10))
        assert right < wrong


class TestWeights:
    def test_go_and_come(self) -> None:
        networks = [draw_network("convnet", DIGITS, 4, seed) for seed in range(3)]
        rows = decode_networks(encode_networks(networks), DIGITS, 4)
        inputs = torch.randn(2, 1, 8, 8)
        for network, row in zip(networks, rows, strict=True):
            assert torch.equal(given_network(row, DIGITS, 4)(inputs), network(inputs))

    @pytest.mark.parametrize("side", [1, 8, 28])
    def test_are_as_many_as_the_shape_says(self, side: int) -> None:
        schema = Schema((side, side, 2), 3)
        count = sum(weights.numel() for weights in draw_network("convnet", schema, 5, 0).parameters())
        assert ConvNetShape.of(schema, 5).parameters(3) == count

    @pytest.mark.parametrize("content", [b"", b"no tensors", encode_networks([draw_network("convnet", DIGITS, 5, 0)])])
    def test_of_another_network_are_refused(self, content: bytes) -> None:
        with pytest.raises(QueryError, match="weights"):
            decode_networks(content, DIGITS, 4)


def test_gradient_sums_are_those_of_a_plain_loop(train: Records) -> None:
    network = draw_network("convnet", DIGITS, 4, 0)
    content = encode_networks([network])
    query = GradientSums(
        schema=DIGITS, noise_multiplier=1.0, width=4, weights="0" * 64, sampling_probability=1.0, clip=0.5
    )
    some = train.take(np.arange(9))
    summed = gradient_sums(query, some, bench(SeededEntropy(), artifacts={"0" * 64: content})) * query.grid()
    assert summed == pytest.approx(plain_sum(network, some, query.clip), abs=9 * query.grid() + 1e-5)


def plain_sum(network: Network, records: Records, clip: float) -> np.ndarray[Any, Any]:
    total = np.zeros(sum(weights.numel() for weights in network.parameters()))
    for features, label in zip(records.flat(), records.labels, strict=True):
        network.zero_grad()
        logits = network(torch.from_numpy(features).reshape(1, 1, 8, 8))
        torch.nn.functional.cross_entropy(logits, torch.tensor([label])).backward()
        gradient = np.concatenate([weights.grad.numpy().ravel() for weights in network.parameters()])  # type: ignore[union-attr]
        total += gradient * min(1, clip / np.linalg.norm(gradient))
    return total
