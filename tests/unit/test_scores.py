"""Scores on silos' own records: what the mechanism counts, and what the server makes of noisy counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from support.entropies import ScriptedEntropy
from support.guards import bench
from support.moments import HONEST, SHELF, models, shelve
from support.toy_images import TOY, toy_backbone, toy_records

from silosynth.client.mechanisms import MECHANISMS
from silosynth.common.accounting import epsilon
from silosynth.common.backbones import backbone, decode_backbone, encode_backbone, save_backbone
from silosynth.common.config import parse
from silosynth.common.datasets import Records
from silosynth.common.errors import ConfigError, QueryError
from silosynth.common.queries import Scores
from silosynth.common.schema import Schema
from silosynth.deploy.inprocess import InProcess
from silosynth.server.config import EvaluationSettings, RunConfig
from silosynth.server.evaluation import SiloScoring, score_query
from silosynth.server.evaluation.intervals import noisy_share
from silosynth.server.recipes.base import Product

GREY = Schema((8, 8, 1), 3)
HONEST_MODEL, *HOSTILE_MODELS = models(3)
QUERY = Scores(schema=GREY, noise_multiplier=1.0, model=HONEST_MODEL)
TABLES: dict[str, Any] = {
    "name": "toy",
    "recipe": "prototypes",
    "records": {"shape": [8, 8, 1], "classes": 3},
    "privacy": {"epsilon": 1.0},
    "federation": {"silos": ["a"]},
    "evaluation": {"test": {"source": "digits"}, "silo_epsilon": 0.5},
}


def counted(query: Scores, records: Records, steps: list[float] | None = None) -> dict[str, np.ndarray]:
    tool = bench(ScriptedEntropy(), [].append if steps is None else steps.append, SHELF)
    return query.layout().split(MECHANISMS["scores"](query, records, tool) * query.grid())


def test_records_and_those_that_are_named_rightly_are_counted_by_class() -> None:
    records = toy_records((130, 7, 150))  # more than one batch, the last one not full
    said = decode_backbone(SHELF[HONEST_MODEL], "").logits(torch.from_numpy(records.features).permute(0, 3, 1, 2))
    right = records.labels[said.argmax(1).numpy() == records.labels]
    found = counted(QUERY, records)
    assert found["records"].tolist() == [130, 7, 150]
    assert found["correct"].tolist() == np.bincount(right, minlength=3).tolist()
    assert 0 < len(right) < len(records)


@pytest.mark.parametrize("model", HOSTILE_MODELS)
def test_models_that_give_no_numbers_name_some_class(model: str) -> None:
    found = counted(replace(QUERY, model=model), toy_records())
    assert found["records"].tolist() == [40, 40, 40]
    assert (found["correct"] <= found["records"]).all()


def test_empty_silos_and_progress_tell_nothing() -> None:
    for sizes in ((0, 0, 0), (1, 0, 0), (200, 200, 200)):
        steps: list[float] = []
        assert counted(QUERY, toy_records(sizes), steps)["records"].tolist() == list(sizes)
        assert steps == [step / 20 for step in range(1, 21)]


def test_models_that_do_not_fit_are_refused() -> None:
    colour = shelve(encode_backbone(backbone("residual-24", 3, classes=3)))
    for query, complaint in (
        (replace(QUERY, model=HONEST), "tells 10 classes apart"),
        (replace(QUERY, model=shelve(b"no model")), "no backbone of ours"),
        (replace(QUERY, schema=Schema((8, 8, 3), 3)), "takes 1 channels"),
    ):
        empty = Records(np.zeros((0, *query.schema.shape), np.uint8), np.zeros(0, np.int64), query.schema)
        with pytest.raises(QueryError, match=complaint):
            counted(query, empty)
    assert counted(replace(QUERY, model=colour), toy_records())["records"].sum() == 120, "grey images are no problem"


def test_the_model_is_an_artifact_and_a_backbone() -> None:
    assert QUERY.artifacts() == QUERY.backbones() == (HONEST_MODEL,)


def test_a_score_costs_what_run_toml_says() -> None:
    assert 0.495 < epsilon([score_query(GREY, HONEST, 0.5, 1e-5).event()], 1e-5) <= 0.5


@pytest.fixture
def scoring(tmp_path: Any) -> SiloScoring:
    save_backbone(toy_backbone(), tmp_path / "toy.safetensors")
    settings = EvaluationSettings(backbone=str(tmp_path / "toy.safetensors"), model="backbone", device="cpu")
    return SiloScoring(TOY, settings, 5.0, 1e-5)


def test_a_score_is_near_the_truth_and_its_interval_holds_it(scoring: SiloScoring) -> None:
    synthetic, silos = toy_records(seed=1), [toy_records((80, 80, 80), seed=seed) for seed in (2, 3)]
    asked = scoring.ask(Product(synthetic.features, synthetic.labels))
    assert isinstance(asked.query, Scores)
    exact = InProcess(silos).ask(replace(asked, query=replace(asked.query, noise_multiplier=0.0))).blocks
    truth = exact["correct"].sum() / exact["records"].sum()
    score = scoring.read(asked, InProcess(silos).ask(asked))
    assert truth > 0.6, "three shapes are easily told apart"
    assert score.silos == 2
    assert score.accuracy == pytest.approx(truth, abs=0.15)
    assert score.accuracy_interval is not None
    assert score.accuracy_interval.high - score.accuracy_interval.low < 0.2


def test_the_same_set_is_asked_about_with_the_same_query(scoring: SiloScoring) -> None:
    """So a run that is taken up again is answered with the stored bytes."""
    synthetic = toy_records(seed=1)
    product = Product(synthetic.features, synthetic.labels)
    assert scoring.ask(product) == scoring.ask(product)


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    """Also where the noise is a fifth of the whole, and approximations would fail."""
    generator, held = np.random.default_rng(0), 0
    for part, whole in generator.normal((70.0, 100.0), 20.0, (4000, 2)):
        found = noisy_share(part, whole, 400.0)
        held += found is None or found[1].low <= 0.7 <= found[1].high
    assert held / 4000 == pytest.approx(0.95, abs=0.015)


def test_a_whole_that_is_lost_in_noise_has_no_share() -> None:
    assert noisy_share(5.0, 10.0, 100.0) is None
    assert noisy_share(5.0, -100.0, 1.0) is None
    assert noisy_share(0.0, 0.0, 0.0) is None
    share, interval = noisy_share(30.0, 40.0, 0.0) or (None, None)
    assert interval is not None
    assert share == interval.low == interval.high == 0.75


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"evaluation": {"silo_epsilon": 0.5}}, "set test, too"),
        ({"evaluation": {**TABLES["evaluation"], "silo_epsilon": 0}}, "greater than 0"),
        ({"records": {"shape": [64], "classes": 3}}, "looks at images"),
    ],
)
def test_scores_nobody_could_give_are_refused_before_anybody_is_asked(changes: Any, complaint: str) -> None:
    assert parse(RunConfig, TABLES, "run.toml").evaluation.silo_epsilon == 0.5
    with pytest.raises(ConfigError, match=complaint):
        parse(RunConfig, TABLES | changes, "run.toml")
