"""No record, however hostile, moves what a mechanism computes by more than the sensitivity its query states.

The comparison is exact: squared integers against the square of sensitivity / grid as a fraction.
A new mechanism is tested by adding its subject to SUBJECTS.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from support.entropies import SeededEntropy
from support.guards import bench
from support.moments import HONEST, HOSTILE, LAYERS, SHELF, models, shelve, shelved_center
from support.teaching import PROBABILITIES, answers_query, sub_teachers

from silosynth.client.guard.mechanism import Mechanism
from silosynth.client.mechanisms import MECHANISMS
from silosynth.common.auxiliary import encode_records
from silosynth.common.backbones import decode_backbone
from silosynth.common.datasets.records import Records
from silosynth.common.networks.extractors import draw_network
from silosynth.common.networks.weights import encode_networks
from silosynth.common.queries import (
    ClassCounts,
    FeatureSums,
    GradientSums,
    LabelTraining,
    LocalSynthesis,
    Mixtures,
    Moments,
    PrivateTraining,
    Query,
    Scores,
    SufficientStatistics,
    TeacherAnswers,
    Votes,
)
from silosynth.common.queries.feature_sums import AUGMENTATIONS
from silosynth.common.schema import Schema
from silosynth.common.statistics.spatial import SpatialFeatures

Vector = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]

ROWS = st.tuples(st.integers(1, 9))
GREY_IMAGES = st.tuples(st.integers(2, 6), st.integers(2, 6), st.just(1))
MODELS = {classes: models(classes) for classes in (1, 2, 3)}
SMALL_IMAGES = st.tuples(st.integers(1, 5), st.integers(1, 5), st.integers(1, 2))


@dataclass(frozen=True)
class Subject:
    """How to make queries for a mechanism, and which parts of its answer its sensitivity bounds one by one."""

    queries: Callable[[Schema], st.SearchStrategy[Any]]
    shapes: st.SearchStrategy[tuple[int, ...]] = ROWS
    parts: Callable[[Any, Integers], list[Integers]] = lambda _, change: [change]
    fewest_classes: int = 1


def mixture_queries(schema: Schema) -> st.SearchStrategy[Mixtures]:
    largest = schema.dimension**0.5
    clips = st.floats(1e-6, largest) | st.sampled_from([largest, largest / 2, 2.0**-19, 1e-6])
    return clips.flatmap(
        lambda clip: st.builds(
            Mixtures,
            schema=st.just(schema),
            noise_multiplier=st.just(1.0),
            mixtures=st.integers(1, 4),
            sampling_probability=st.sampled_from([1.0, 0.5, 0.9]),
            center=st.floats(-1, 1) | st.sampled_from([-1.0, 0.0, 1.0]),
            clip=st.just(clip),
            count_weight=st.floats(1e-6, 1e3).map(lambda share: share * clip) | st.just(clip),
        )
    )


def feature_queries(schema: Schema) -> st.SearchStrategy[FeatureSums]:
    """Coins of later signals would differ for datasets of different sizes: one signal where there are coins."""
    samples = st.tuples(st.just(1), st.sampled_from([0.5, 0.9])) | st.tuples(st.integers(1, 3), st.just(1.0))
    bounds = st.tuples(st.floats(1e-6, 1e6) | st.sampled_from([1e-6, 0.1, 1.0]), st.floats(1e-6, 1e3) | st.just(1.0))
    names = st.lists(st.sampled_from(AUGMENTATIONS), unique=True).map(",".join)
    return st.tuples(samples, bounds).flatmap(
        lambda drawn: st.builds(
            FeatureSums,
            schema=st.just(schema),
            noise_multiplier=st.just(1.0),
            first=st.integers(0, 5),
            signals=st.just(drawn[0][0]),
            sampling_probability=st.just(drawn[0][1]),
            network=st.sampled_from(["convnet", "linear"] if schema.is_image else ["linear"]),
            width=st.integers(1, 4),
            seed=st.integers(0, 9),
            augmentation=names if schema.is_image else st.just(""),
            projected=st.integers(0, 1) if schema.is_image else st.just(0),
            auxiliary=st.just(""),
            clip=st.just(drawn[1][0]),
            count_weight=st.just(drawn[1][0] * drawn[1][1]),
        ).flatmap(as_drawn_or_given_or_fourier)
    )


def as_drawn_or_given_or_fourier(query: FeatureSums) -> st.SearchStrategy[FeatureSums]:
    """Convnets may be given, with any weights; a linear network may be one of Fourier features."""
    if query.network == "convnet":
        return st.sampled_from(["", *given_weights(query.schema, query.width)]).map(
            lambda weights: replace(query, weights=weights)
        )
    scales = st.floats(1e-3, 1e3) | st.sampled_from([1e-3, 0.7])
    return st.just(query) | scales.map(
        lambda scale: replace(query, network="fourier", width=2 * query.width, length_scale=scale)
    )


def given_weights(schema: Schema, width: int) -> list[str]:
    """Of an honest network and of hostile ones, as artifacts."""
    made = []
    for factor in (1.0, 1e4, 1e38):
        network = draw_network("convnet", schema, width, 0)
        for weights in network.parameters():
            weights.data.mul_(factor)
        made.append(shelve(encode_networks([network])))
    return made


def gradient_queries(schema: Schema) -> st.SearchStrategy[GradientSums]:
    return st.integers(1, 3).flatmap(
        lambda width: st.builds(
            GradientSums,
            schema=st.just(schema),
            noise_multiplier=st.just(1.0),
            width=st.just(width),
            weights=st.sampled_from(given_weights(schema, width)),
            sampling_probability=st.sampled_from([1.0, 0.5]),
            clip=st.floats(1e-6, 1e6) | st.sampled_from([1e-6, 0.1, 1.0]),
        )
    )


@st.composite
def moments_queries(draw: st.DrawFn, schema: Schema) -> Moments:
    """Through honest and hostile networks, around nothing and around any centre."""
    members = draw(st.integers(0, schema.classes))
    query = Moments(
        schema=schema,
        noise_multiplier=1.0,
        backbone=draw(st.sampled_from([HONEST, *HOSTILE])),
        layers=LAYERS,
        global_dimension=draw(st.integers(1, 9)),
        class_dimension=draw(st.integers(1, 9)),
        class_layers=draw(st.integers(1, LAYERS)),
        pseudo_classes=draw(st.sampled_from([schema.classes, 2 * schema.classes])) if members else 0,
        classes_per_pseudo_class=members,
        seed=draw(st.integers(0, 9)),
        clip=draw(st.floats(2.0**-8, 2.0**4) | st.sampled_from([2.0**-8, 0.125])),
        count_weight=draw(st.floats(2.0**-6, 2.0**6) | st.just(0.15)),
        center="",
    )
    size = draw(st.sampled_from([0.0, 0.1, 1.0]))
    return replace(query, center=shelved_center(query, draw(st.integers(0, 9)), size)) if size else query


def score_queries(schema: Schema) -> st.SearchStrategy[Scores]:
    chosen = st.sampled_from(MODELS[schema.classes])
    return st.builds(Scores, schema=st.just(schema), noise_multiplier=st.just(1.0), model=chosen)


@cache
def spatial_features(backbone: str, shape: tuple[int, ...]) -> int:
    return SpatialFeatures(decode_backbone(SHELF[backbone], "shelf")).size(shape)


@st.composite
def vote_queries(draw: st.DrawFn, schema: Schema) -> Votes:
    """For any images, among them many that are the same, through honest and hostile networks."""
    per_class, views = draw(st.integers(1, 4)), draw(st.integers(1, 2))
    shape = (schema.classes * per_class * views, *schema.shape)
    images = draw(arrays(np.uint8, shape) | st.just(np.zeros(shape, dtype=np.uint8)))
    chosen = draw(st.sampled_from([HONEST, *HOSTILE]))
    return Votes(
        schema=schema,
        noise_multiplier=1.0,
        backbone=chosen,
        features=spatial_features(chosen, schema.shape),
        candidates=shelve(encode_records(images)),
        per_class=per_class,
        views=views,
    )


@st.composite
def answer_queries(draw: st.DrawFn, schema: Schema) -> TeacherAnswers:
    """A record changes a plain teacher, or one of several; steps are few, so that hostile ones still move it far."""
    usual = {
        "schema": schema,
        "seed": draw(st.integers(0, 9)),
        "number": draw(st.integers(1, 5)),
        "kept": draw(st.integers(2, schema.classes)),
        "network": draw(st.sampled_from(["linear", "mlp"])),
        "steps": draw(st.integers(1, 3)),
    }
    form = draw(st.sampled_from(["probabilities", "gradients", "classes"]))
    if form == "classes":
        return answers_query(**usual, answers=form, other_weight=0.0)
    if form == "probabilities":
        return sub_teachers(draw(st.integers(2, 4)), **usual | PROBABILITIES | {"kept": schema.classes})
    weighted = usual | {"other_weight": draw(st.sampled_from([0.0, 0.2, 8.0]))}
    return sub_teachers(draw(st.integers(2, 4)), **weighted) if draw(st.booleans()) else answers_query(**weighted)


def one_part_per_sample(query: Mixtures | FeatureSums, change: Integers) -> list[Integers]:
    blocks = query.layout().split(change)
    return [np.append(sums, counts) for sums, counts in zip(blocks["sums"], blocks["counts"], strict=True)]


def statistics_queries(schema: Schema) -> st.SearchStrategy[SufficientStatistics]:
    weights = st.integers(-10, 10).map(lambda exponent: 2.0**exponent)
    return st.builds(
        SufficientStatistics,
        schema=st.just(schema),
        noise_multiplier=st.just(1.0),
        center=st.floats(-1, 1) | st.sampled_from([-1.0, 0.0, 1.0]),
        clip=st.floats(1e-6, 1e6) | st.sampled_from([1.0, schema.dimension**0.5]),
        class_weight=weights,
        count_weight=weights,
    )


SUBJECTS = {
    "class_counts": Subject(lambda schema: st.just(ClassCounts(schema=schema, noise_multiplier=1.0))),
    "feature_sums": Subject(feature_queries, ROWS | SMALL_IMAGES, one_part_per_sample),
    "gradient_sums": Subject(gradient_queries, SMALL_IMAGES),
    "mixtures": Subject(mixture_queries, parts=one_part_per_sample),
    "moments": Subject(moments_queries, GREY_IMAGES),
    "scores": Subject(score_queries, GREY_IMAGES),
    "sufficient_statistics": Subject(statistics_queries),
    "votes": Subject(vote_queries, GREY_IMAGES),
    "teacher_answers": Subject(answer_queries, ROWS | SMALL_IMAGES, fewest_classes=2),
}


def vectors(dimension: int, query: Query) -> st.SearchStrategy[Vector]:
    """Records that try to be too long: far out, in a corner, along an axis, almost nothing, just at the clip."""
    center, clip = getattr(query, "center", 0.0), getattr(query, "clip", 1.0)
    center = center if isinstance(center, float) else 0.0  # of moments, not of pixels
    anything = arrays(np.float32, dimension, elements=st.floats(width=32, allow_nan=False, allow_infinity=False))
    inside = arrays(np.float32, dimension, elements=st.floats(-1, 1, width=32))
    axes = st.tuples(st.integers(0, dimension - 1), st.sampled_from([-1.0, 1.0, 1e-40])).map(
        lambda axis: np.where(np.arange(dimension) == axis[0], axis[1], 0).astype(np.float32)
    )
    constants = st.sampled_from([-1.0, 1.0, 0.0, -1e-40, 3e38, 0.1]).map(
        lambda value: np.full(dimension, value, dtype=np.float32)
    )
    directions = (inside | axes | constants).filter(lambda vector: np.linalg.norm(vector.astype(np.float64)) > 0)
    at_the_clip = directions.map(
        lambda vector: np.float32(center + clip * (vector / np.linalg.norm(vector.astype(np.float64))))
    )
    return anything | inside | axes | constants | at_the_clip


@st.composite
def neighbours(draw: st.DrawFn, subject: Subject) -> tuple[Query, Records, Records]:
    """A query, and two datasets of which the second holds one record more."""
    schema = Schema(draw(subject.shapes), draw(st.integers(subject.fewest_classes, 3)))
    query = draw(subject.queries(schema))
    hostile = draw(vectors(schema.dimension, query))
    others = draw(st.lists(vectors(schema.dimension, query) | st.just(hostile), max_size=3))
    features = np.array([*others, hostile], dtype=np.float32).reshape(-1, *schema.shape)
    labels = np.array(draw(st.lists(st.integers(0, schema.classes - 1), min_size=4, max_size=4)))[: len(features)]
    larger = Records(features, labels, schema)
    return query, larger.take(np.arange(len(others))), larger


def check_sensitivity(mechanism: Mechanism, subject: Subject, pair: tuple[Query, Records, Records]) -> None:
    """Both datasets see the same coins for the records they share."""
    query, smaller, larger = pair
    without, with_it = (
        mechanism(query, records, bench(SeededEntropy(), artifacts=SHELF)) for records in (smaller, larger)
    )
    plan = query.plan()
    assert with_it.dtype == np.int64
    assert with_it.shape == (plan.layout.size,)
    allowed = (Fraction(plan.sensitivity) / Fraction(plan.grid)) ** 2
    for part in subject.parts(query, with_it - without):
        assert sum(step * step for step in part.tolist()) <= allowed


def test_every_mechanism_that_sees_records_is_a_subject() -> None:
    """test_local_privacy.py has the first of the others, test_teaching_privacy.py the rest."""
    others = {LocalSynthesis.mechanism, PrivateTraining.mechanism, LabelTraining.mechanism}
    assert SUBJECTS.keys() | others == MECHANISMS.keys()


@pytest.mark.parametrize("name", SUBJECTS)
@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_one_record_moves_the_answer_no_further_than_stated(name: str, data: st.DataObject) -> None:
    check_sensitivity(MECHANISMS[name], SUBJECTS[name], data.draw(neighbours(SUBJECTS[name])))


@pytest.mark.slow
@pytest.mark.parametrize("name", SUBJECTS)
@settings(max_examples=2000, deadline=None)
@given(data=st.data())
def test_one_record_of_thousands_moves_the_answer_no_further_than_stated(name: str, data: st.DataObject) -> None:
    check_sensitivity(MECHANISMS[name], SUBJECTS[name], data.draw(neighbours(SUBJECTS[name])))


def assert_caught(name: str, mutant: Mechanism) -> None:
    @settings(max_examples=1000, deadline=None, derandomize=True, database=None, phases=[Phase.generate])
    @given(pair=neighbours(SUBJECTS[name]))
    def check(pair: tuple[Query, Records, Records]) -> None:
        check_sensitivity(mutant, SUBJECTS[name], pair)

    with pytest.raises(AssertionError):
        check()


@pytest.mark.parametrize("name", SUBJECTS)
def test_a_mechanism_that_counts_records_twice_is_caught(name: str) -> None:
    assert_caught(name, lambda *arguments: 2 * MECHANISMS[name](*arguments))


def nearest(features: Vector, center: float, clip: float, grid: float) -> Integers:
    centered = features.astype(np.float64) - center
    norms = np.linalg.norm(centered, axis=1, keepdims=True)
    return np.rint(centered * (clip / np.maximum(norms, clip)) / grid).astype(np.int64)


def clipped_at_twice_the_bound(features: Vector, center: float, clip: float, grid: float) -> Integers:
    centered = features.astype(np.float64) - center
    norms = np.linalg.norm(centered, axis=1, keepdims=True)
    return np.trunc(centered * (2 * clip / np.maximum(norms, 2 * clip)) / grid).astype(np.int64)


@pytest.mark.parametrize("mutant", [nearest, clipped_at_twice_the_bound])
@pytest.mark.parametrize("name", ["feature_sums", "mixtures", "sufficient_statistics"])
def test_mutants_of_clipping_are_caught(name: str, mutant: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MECHANISMS[name].__globals__, "clipped", mutant)
    assert_caught(name, MECHANISMS[name])
