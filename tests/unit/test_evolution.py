"""Private Evolution: who votes for what, what it costs, who lives on, and that it comes nearer to the records."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.entropies import SeededEntropy
from support.guards import bench
from support.neighbours import nearest_neighbour_accuracy
from support.toy_images import TOY, toy_backbone, toy_records

from silosynth.client.mechanisms.votes import votes
from silosynth.common.accounting import epsilon
from silosynth.common.auxiliary import encode_records
from silosynth.common.backbones import encode_backbone
from silosynth.common.datasets import Records, load
from silosynth.common.errors import QueryError
from silosynth.common.queries import FeatureSums, Votes
from silosynth.common.schema import Schema
from silosynth.common.statistics.spatial import SpatialFeatures
from silosynth.deploy.inprocess import InProcess
from silosynth.server.generators.population import Population
from silosynth.server.recipes import recipe_named
from silosynth.server.recipes.base import Ask, Product, Summed, Task, drive
from silosynth.server.recipes.workplace import Sketch, Workplace

DELTA = 1e-5
BACKBONE = encode_backbone(toy_backbone())
FEATURES = SpatialFeatures(toy_backbone()).size(TOY.shape)
SHORT = {"evolution_steps": 3, "candidates": 8, "records_per_class": 5}


def digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def as_pixels(records: Records) -> np.ndarray[Any, Any]:
    return np.rint((records.features + 1) * 127.5).astype(np.uint8)


def query_for(images: np.ndarray[Any, Any], views: int = 1, noise_multiplier: float = 1.0) -> Votes:
    return Votes(
        schema=TOY,
        noise_multiplier=noise_multiplier,
        backbone=digest_of(BACKBONE),
        features=FEATURES,
        candidates=digest_of(encode_records(images)),
        per_class=len(images) // TOY.classes // views,
        views=views,
    )


def counted(query: Votes, records: Records, images: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    shelf = {digest_of(content): content for content in (BACKBONE, encode_records(images))}
    exact = votes(query, records, bench(SeededEntropy(), artifacts=shelf))
    return exact.reshape(TOY.classes, -1) * query.grid()


class TestVotes:
    def test_a_record_votes_for_itself_among_candidates_of_its_class(self) -> None:
        records = toy_records((4, 4, 4))
        assert (counted(query_for(as_pixels(records)), records, as_pixels(records)) == 1).all()

    def test_each_record_has_one_vote_in_its_class(self) -> None:
        records, images = toy_records((30, 5, 0)), as_pixels(toy_records((6, 6, 6), seed=1))
        assert counted(query_for(images), records, images).sum(axis=1).tolist() == [30, 5, 0]

    def test_a_candidate_of_several_views_lies_at_their_mean(self) -> None:
        """Doubled views change nothing."""
        records, images = toy_records(), as_pixels(toy_records((6, 6, 6), seed=1))
        twice = images.repeat(2, axis=0)
        assert (counted(query_for(twice, views=2), records, twice) == counted(query_for(images), records, images)).all()

    def test_replacing_a_record_moves_one_vote(self) -> None:
        """The paper's relation: sqrt(2), where a record added or removed moves the answer by 1."""
        images = as_pixels(toy_records((6, 6, 6), seed=1))
        ours, theirs = toy_records(seed=2), toy_records(seed=3)
        query, before = query_for(images), counted(query_for(images), ours, images)
        lengths = []
        for row in range(0, len(ours), 7):
            pixels = ours.features.copy()
            pixels[row] = theirs.features[row]
            change = counted(query, Records(pixels, ours.labels, TOY), images) - before
            lengths.append(float(np.linalg.norm(change)))
        assert set(np.round(lengths, 6)) == {0.0, round(math.sqrt(2), 6)}

    def test_five_steps_of_the_paper_cost_what_they_should(self) -> None:
        images = as_pixels(toy_records((6, 6, 6)))
        query = query_for(images, noise_multiplier=2 * math.sqrt(2))
        assert query.sensitivity() == 1.0
        assert epsilon([query.event()] * 5, DELTA) == pytest.approx(3.341, abs=2e-3)

    @pytest.mark.parametrize("content", [b"", encode_records(np.zeros((5, 8, 8, 1), dtype=np.uint8))])
    def test_other_candidates_than_announced_are_refused(self, content: bytes) -> None:
        query = query_for(as_pixels(toy_records((6, 6, 6))))
        shelf = {query.backbone: BACKBONE, query.candidates: content}
        with pytest.raises(QueryError, match="candidates"):
            votes(query, toy_records(), bench(SeededEntropy(), artifacts=shelf))

    def test_too_many_candidates_are_refused(self) -> None:
        with pytest.raises(QueryError, match="more than"):
            query_for(np.zeros((3 << 15, 8, 8, 1), dtype=np.uint8), views=2)


class TestPopulation:
    def candidates(self) -> Population:
        return Population(np.arange(8, dtype=np.uint8).reshape(8, 1, 1, 1), 2)

    def test_the_best_of_each_class(self) -> None:
        kept = self.candidates().best(np.array([[1.0, 5, 0, 2], [0, 0, 0, 9]]), 2)
        assert kept.images.ravel().tolist() == [1, 3, 7, 4]

    def test_drawn_in_proportion_to_votes(self) -> None:
        drawn, first = self.candidates().drawn(np.array([[3.0, 1, 0, 0], [0, 0, 0, 0]]), 4, seed=0)
        assert drawn.images.ravel().tolist() == [0, 0, 0, 1, 4, 5, 6, 7]
        assert first.tolist() == [True, False, False, True, True, True, True, True]

    def test_side_by_side_they_stay_sorted_by_class(self) -> None:
        both = self.candidates().beside(self.candidates())
        assert (both.images.ravel() // 4 == both.labels).all()


class Noting(Workplace):
    def report(self, share: float, loss: float, sketch: Sketch | None = None, what: str = "synthesizing") -> None:
        assert sketch is not None
        images, labels = sketch()
        assert images.shape == (len(labels), *TOY.shape)
        noted.append((what, share))


noted = list[tuple[str, float]]()


def evolved(records: Records, budget: float, workplace: Workplace | None = None, **chosen: Any) -> tuple[Product, Any]:
    recipe, asked = recipe_named("evolution"), list[Ask]()
    federation = InProcess([records], SeededEntropy(0))

    def ask(step: Ask) -> Summed:
        asked.append(step)
        return federation.ask(step)

    task = Task(records.schema, budget, DELTA, workplace=workplace or Workplace())
    return drive(recipe.steps(task, recipe.parameters(**SHORT | chosen)), ask), asked


class TestEvolution:
    def test_its_steps_compose_to_the_budget(self) -> None:
        _, asked = evolved(toy_records(), 2.0)
        assert len(asked) == SHORT["evolution_steps"]
        assert 0.99 * 2.0 <= epsilon([ask.query.event() for ask in asked], DELTA) <= 2.0

    @pytest.mark.parametrize("chosen", [{}, {"lookahead": 2}, {"kept": 0.0}, {"threshold": 1e6}])
    def test_makes_as_many_images_as_it_is_told(self, chosen: dict[str, Any]) -> None:
        made, asked = evolved(toy_records(), 5.0, **chosen)
        assert made.features.shape == (15, *TOY.shape)
        assert np.bincount(made.labels).tolist() == [5, 5, 5]
        assert asked[0].query.views == max(chosen.get("lookahead", 0), 1)

    def test_shapes_drawn_by_procedure_become_digits(self) -> None:
        train, test = (load("digits", split=split) for split in ("train", "test"))
        before, after = (
            nearest_neighbour_accuracy(evolved(train, 20.0, evolution_steps=steps, candidates=60)[0], test)
            for steps in (1, 12)
        )
        assert before < 0.3
        assert after > 0.4

    def test_shows_how_far_it_is(self) -> None:
        noted.clear()
        evolved(toy_records(), 5.0, Noting())
        assert noted == [("evolving images", step / 3) for step in (1, 2, 3)]

    def test_a_run_started_again_asks_the_same_whatever_proposes(self, tmp_path: Path) -> None:
        """A program that follows no seed is asked once for each image."""
        source = {"source": "command", "command": ["python3", str(unsteady_program(tmp_path))]}
        place = Workplace(tmp_path / "checkpoints")
        first, second = (evolved(toy_records(), 5.0, place, proposals=source)[1] for _ in range(2))
        assert [ask.query for ask in first] == [ask.query for ask in second]

    def test_serves_dpgeng(self) -> None:
        recipe, asked = recipe_named("dpgeng"), list[Ask]()
        federation = InProcess([toy_records()], SeededEntropy(0))

        def ask(step: Ask) -> Summed:
            asked.append(step)
            return federation.ask(step)

        chosen = recipe.parameters(
            generator={"method": "evolution", "evolution_steps": 2, "candidates": 6},
            **{"pool_per_class": 8, "records_per_class": 1, "extractors": 1, "extractor_steps": 2, "signals": 3},
            **{"width": 4, "steps": 2, "guided": False, "sampling_probability": 0.5},
        )
        drive(recipe.steps(Task(TOY, 5.0, DELTA), chosen), ask)
        assert [type(step.query) for step in asked] == [Votes, Votes, FeatureSums]
        assert 0.99 * 5.0 <= epsilon([step.query.event() for step in asked], DELTA) <= 5.0


def unsteady_program(folder: Path) -> Path:
    program = folder / "unsteady.py"
    program.write_text(
        "import json, sys, pathlib, numpy as np\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        "request = json.loads((folder / 'request.json').read_text())\n"
        "shape = (len(request['labels']), *request['shape'])\n"
        "np.savez(folder / 'answer.npz', images=np.random.default_rng().integers(0, 256, shape, dtype=np.uint8))\n"
    )
    return program


def test_rows_are_no_images() -> None:
    recipe = recipe_named("evolution")
    with pytest.raises(Exception, match="choose another recipe"):
        next(recipe.steps(Task(Schema((6,), 3), 1.0, DELTA), recipe.parameters()))
