"""Queries have one canonical form, and nothing else passes for a query."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from silosynth.common.errors import QueryError
from silosynth.common.layout import Layout
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
    decode,
    digest,
    encode,
)
from silosynth.common.queries.base import MAX_QUERY_BYTES, MAX_VALUES
from silosynth.common.queries.local_synthesis import canonical_json
from silosynth.common.schema import Schema
from silosynth.protos.v1 import query_pb2

SIDES = st.integers(1, 12)
SCHEMAS = st.builds(Schema, st.tuples(SIDES) | st.tuples(SIDES, SIDES, st.integers(1, 3)), st.integers(1, 100))
COMMON = {"schema": SCHEMAS, "noise_multiplier": st.just(0.0) | st.floats(1e-3, 100)}
WEIGHTS = st.integers(-5, 5).map(lambda exponent: 2.0**exponent)
CENTERS = st.floats(-1, 1)
DIGESTS = st.sampled_from(["0123456789abcdef" * 4, "f" * 64])
FEATURES: dict[str, st.SearchStrategy[Any]] = COMMON | {
    "schema": st.builds(Schema, st.tuples(SIDES, SIDES, st.integers(1, 3)), st.integers(1, 100)),
    "first": st.integers(0, 2**31),
    "signals": st.integers(1, 1000),
    "sampling_probability": st.floats(0, 1, exclude_min=True),
    "network": st.sampled_from(["convnet", "linear"]),
    "width": st.integers(1, 16),
    "seed": st.integers(0, 2**64 - 1),
    "augmentation": st.sampled_from(["", "crop", "color,crop,cutout,scale,rotate"]),
    "projected": st.just(1),
    "auxiliary": st.just("") | DIGESTS,
    "clip": st.floats(1e-3, 1),
    "count_weight": st.floats(1e-3, 1),
}
ROW_FEATURES: dict[str, st.SearchStrategy[Any]] = {
    "schema": st.builds(Schema, st.tuples(SIDES), st.integers(1, 100)),
    "network": st.just("linear"),
    "augmentation": st.just(""),
    "projected": st.just(0),
    "auxiliary": st.just(""),
}
MOMENTS: dict[str, st.SearchStrategy[Any]] = COMMON | {
    "schema": st.builds(Schema, st.tuples(SIDES, SIDES, st.integers(1, 3)), st.integers(1, 100)),
    "backbone": DIGESTS,
    "layers": st.integers(5, 20),
    "global_dimension": st.integers(1, 64),
    "class_dimension": st.integers(1, 64),
    "class_layers": st.integers(1, 5),
    "pseudo_classes": st.just(0),
    "classes_per_pseudo_class": st.just(0),
    "seed": st.integers(0, 2**64 - 1),
    "clip": st.floats(2.0**-8, 2.0**4),
    "count_weight": st.floats(2.0**-6, 2.0**6),
    "center": st.just("") | DIGESTS,
}
PSEUDO_CLASSES: dict[str, st.SearchStrategy[Any]] = {
    "schema": st.builds(Schema, st.tuples(SIDES, SIDES, st.integers(1, 3)), st.sampled_from([2, 5, 10])),
    "pseudo_classes": st.integers(1, 9).map(lambda tens: 10 * tens),
    "classes_per_pseudo_class": st.integers(1, 2),
}
TRAINING: dict[str, st.SearchStrategy[Any]] = COMMON | {
    "schema": st.builds(Schema, st.tuples(st.integers(4, 12), st.integers(4, 12), st.just(1)), st.integers(2, 100)),
    "network": st.sampled_from(["linear", "mlp"]),
    "backbone": DIGESTS,
    "seed": st.integers(0, 2**64 - 1),
    "steps": st.integers(1, 100_000),
    "sampling_probability": st.floats(0, 1, exclude_min=True),
    "clip": st.floats(1e-3, 1e3),
    "features": st.integers(1, 1000),
}
ANSWERS: dict[str, st.SearchStrategy[Any]] = {
    "inputs": DIGESTS,
    "number": st.integers(1, 1000),
    "answers": st.just("gradients"),
    "kept": st.just(2),
    "other_weight": st.floats(0, 10),
    "parts": st.just(1),
}
PLAIN = {"teachers": st.just("plain"), "sampling_probability": st.just(0.0), "clip": st.just(0.0)}
SUB_TEACHERS = {"teachers": st.just("sub-teachers"), "parts": st.integers(2, 1024)}
PROBABILITIES = {"answers": st.just("probabilities"), "other_weight": st.just(0.0)}
TWO_CLASSES = {"schema": st.just(Schema((8, 8, 1), 2))}  # both are kept
RESPONSES = {"answers": st.just("classes"), "other_weight": st.just(0.0)}

LABELS = {"teachers": st.just("label-dp"), "sampling_probability": st.just(0.0), "clip": st.just(0.0)}

QUERIES: dict[str, st.SearchStrategy[Query]] = {
    "class_counts": st.builds(ClassCounts, **COMMON),
    "feature_sums": st.builds(FeatureSums, **FEATURES | ROW_FEATURES) | st.builds(FeatureSums, **FEATURES),
    "local_synthesis": st.builds(
        LocalSynthesis,
        schema=st.builds(Schema, st.tuples(SIDES, SIDES, st.integers(1, 3)), st.integers(1, 100)),
        noise_multiplier=COMMON["noise_multiplier"],
        backbone=DIGESTS,
        questions=st.integers(1, 64),
        images_per_class=st.integers(1, 100),
        labels=st.sampled_from(["hard", "gaussian"]),
        seed=st.integers(0, 2**64 - 1),
        settings=st.dictionaries(st.text(max_size=4), st.integers() | st.floats(-9, 9) | st.text(max_size=4)).map(
            canonical_json
        ),
    ),
    "mixtures": st.builds(
        Mixtures,
        **COMMON,
        mixtures=st.integers(1, 1000),
        sampling_probability=st.floats(0, 1, exclude_min=True),
        center=CENTERS,
        clip=st.floats(1e-3, 1),
        count_weight=st.floats(1e-3, 1),
    ),
    "gradient_sums": st.builds(
        GradientSums,
        schema=FEATURES["schema"],
        noise_multiplier=COMMON["noise_multiplier"],
        width=st.integers(1, 16),
        weights=DIGESTS,
        sampling_probability=st.floats(0, 1, exclude_min=True),
        clip=st.floats(1e-3, 1),
    ),
    "moments": st.builds(Moments, **MOMENTS) | st.builds(Moments, **MOMENTS | PSEUDO_CLASSES),
    "label_training": st.builds(
        LabelTraining, **{name: kind for name, kind in TRAINING.items() if name not in ("clip", "sampling_probability")}
    ),
    "private_training": st.builds(PrivateTraining, **TRAINING),
    "votes": st.builds(
        Votes,
        schema=st.builds(Schema, st.tuples(SIDES, SIDES, st.integers(1, 3)), st.integers(1, 20)),
        noise_multiplier=COMMON["noise_multiplier"],
        backbone=DIGESTS,
        features=st.integers(1, 8192),
        candidates=DIGESTS,
        per_class=st.integers(1, 300),
        views=st.integers(1, 8),
    ),
    "scores": st.builds(
        Scores,
        schema=st.builds(Schema, st.tuples(SIDES, SIDES, st.integers(1, 3)), st.integers(1, 100)),
        noise_multiplier=COMMON["noise_multiplier"],
        model=DIGESTS,
    ),
    "sufficient_statistics": st.builds(
        SufficientStatistics,
        **COMMON,
        center=CENTERS,
        clip=st.floats(1e-6, 1e6),
        class_weight=WEIGHTS,
        count_weight=WEIGHTS,
    ),
    "teacher_answers": st.builds(TeacherAnswers, **TRAINING | ANSWERS | {"teachers": st.just("dp-sgd")})
    | st.builds(TeacherAnswers, **TRAINING | ANSWERS | PLAIN)
    | st.builds(TeacherAnswers, **TRAINING | ANSWERS | PLAIN | SUB_TEACHERS)
    | st.builds(TeacherAnswers, **TRAINING | ANSWERS | PLAIN | PROBABILITIES | TWO_CLASSES)
    | st.builds(TeacherAnswers, **TRAINING | ANSWERS | LABELS)
    | st.builds(TeacherAnswers, **TRAINING | ANSWERS | PLAIN | RESPONSES),
}
ANY_QUERY = st.one_of(*QUERIES.values())
EXAMPLE = Mixtures(
    schema=Schema((8, 8, 1), 10),
    noise_multiplier=1.5,
    mixtures=50,
    sampling_probability=0.25,
    center=0.0,
    clip=4.0,
    count_weight=0.5,
)
STATISTICS = SufficientStatistics(
    schema=Schema((3,), 2), noise_multiplier=1.5, center=0.0, clip=1.0, class_weight=1.0, count_weight=0.5
)
FEATURE_SUMS = FeatureSums(
    schema=Schema((8, 8, 1), 10),
    noise_multiplier=1.5,
    first=0,
    signals=100,
    sampling_probability=0.25,
    network="convnet",
    width=32,
    seed=0,
    augmentation="crop",
    projected=0,
    auxiliary="",
    clip=1.0,
    count_weight=0.15,
)
MOMENT_SUMS = Moments(
    schema=Schema((8, 8, 1), 10),
    noise_multiplier=1.5,
    backbone="ab" * 32,
    layers=19,
    global_dimension=32,
    class_dimension=16,
    class_layers=3,
    pseudo_classes=40,
    classes_per_pseudo_class=2,
    seed=0,
    clip=0.125,
    count_weight=0.15,
    center="",
)
SCORES = Scores(schema=Schema((8, 8, 1), 10), noise_multiplier=1.5, model="ab" * 32)
IMAGES = LocalSynthesis(
    schema=Schema((8, 8, 1), 10),
    noise_multiplier=1.5,
    backbone="ab" * 32,
    questions=2,
    images_per_class=5,
    labels="hard",
    seed=0,
    settings="{}",
)
ANSWERED = TeacherAnswers(
    schema=Schema((8, 8, 1), 10),
    noise_multiplier=1.5,
    inputs="ab" * 32,
    number=100,
    answers="gradients",
    kept=3,
    other_weight=0.2,
    teachers="sub-teachers",
    parts=5,
    network="linear",
    backbone="cd" * 32,
    seed=0,
    steps=100,
    sampling_probability=0.0,
    clip=0.0,
    features=64,
)
TRAINED = replace(ANSWERED, teachers="dp-sgd", parts=1, sampling_probability=0.1, clip=1.0).training()

many = settings(max_examples=300, deadline=None)


def test_every_mechanism_of_the_wire_contract_is_a_query_with_the_same_parameters() -> None:
    wire = {field.name: field.message_type for field in query_pb2.Query.DESCRIPTOR.oneofs_by_name["mechanism"].fields}
    assert wire.keys() == Query.kinds.keys() == QUERIES.keys()
    for name, message in wire.items():
        assert Query.kinds[name].parameters() == [field.name for field in message.fields]


@many
@given(ANY_QUERY)
def test_queries_survive_the_wire(query: Query) -> None:
    assert decode(encode(query)) == query
    assert digest(decode(encode(query))) == digest(query) == digest(encode(query))


@many
@given(ANY_QUERY, ANY_QUERY)
def test_different_questions_have_different_digests(one: Query, other: Query) -> None:
    assert (digest(one) == digest(other)) == (encode(one) == encode(other))


def test_digests_never_change() -> None:
    """Ledgers hold them: a query asked again after an upgrade must find its stored answer."""
    assert digest(EXAMPLE).hex() == "652c7f1f56b1c0f190290e60207bb8f4292157bad81b8883aa38c0fa3ddfa731"


@many
@given(st.binary(max_size=200))
def test_random_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(QueryError):
        decode(data)


@many
@given(ANY_QUERY, st.data())
def test_truncated_queries_are_refused(query: Query, data: st.DataObject) -> None:
    whole = encode(query)
    with pytest.raises(QueryError):
        decode(whole[: data.draw(st.integers(0, len(whole) - 1))])


@many
@given(ANY_QUERY, st.data())
def test_a_changed_byte_makes_another_query_or_none(query: Query, data: st.DataObject) -> None:
    changed = bytearray(encode(query))
    position = data.draw(st.integers(0, len(changed) - 1))
    changed[position] ^= data.draw(st.integers(1, 255))
    with suppress(QueryError):
        assert encode(decode(bytes(changed))) == bytes(changed) != encode(query)


@many
@given(ANY_QUERY, st.integers(20, 1000), st.integers(0, 2**63))
def test_unknown_fields_are_refused(query: Query, number: int, value: int) -> None:
    extra = query_pb2.Query()
    extra.MergeFromString(_varint(number << 3) + _varint(value))
    with pytest.raises(QueryError, match="canonical"):
        decode(encode(query) + extra.SerializeToString())


def _varint(value: int) -> bytes:
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])


@many
@given(ANY_QUERY)
def test_reordered_and_repeated_fields_are_refused(query: Query) -> None:
    whole = encode(query)
    schema = query_pb2.Query(schema=query.schema.to_proto()).SerializeToString()
    assert whole.startswith(schema)
    for odd in (whole[len(schema) :] + schema, whole + schema, schema + whole):
        with pytest.raises(QueryError):
            decode(odd)


@pytest.mark.parametrize(
    "query",
    [EXAMPLE, STATISTICS, FEATURE_SUMS, MOMENT_SUMS, SCORES, IMAGES, ANSWERED, TRAINED],
    ids=lambda query: query.mechanism,
)
def test_numbers_that_are_none_are_refused(query: Query) -> None:
    for field in fields(query):
        if isinstance(getattr(query, field.name), float):
            for bad in (math.nan, math.inf, -math.inf, -1e30):
                with pytest.raises(QueryError):
                    replace(query, **{field.name: bad})
                with pytest.raises(QueryError):
                    decode(_with(query, field.name, bad))


def _with(query: Query, name: str, value: float) -> bytes:
    """A well-formed message with a value that no query would have."""
    message = query_pb2.Query.FromString(encode(query))
    setattr(message if name == "noise_multiplier" else getattr(message, query.mechanism), name, value)
    return message.SerializeToString(deterministic=True)


@pytest.mark.parametrize(
    ("query", "change"),
    [
        (EXAMPLE, {"mixtures": 0}),
        (EXAMPLE, {"mixtures": MAX_VALUES}),
        (EXAMPLE, {"mixtures": 1 << 40}),
        (EXAMPLE, {"sampling_probability": 0.0}),
        (EXAMPLE, {"sampling_probability": 1.5}),
        (EXAMPLE, {"clip": 0.0}),
        (EXAMPLE, {"clip": 8.1}),
        (EXAMPLE, {"count_weight": 0.0}),
        (EXAMPLE, {"center": 1.1}),
        (EXAMPLE, {"noise_multiplier": 1e300}),
        (STATISTICS, {"class_weight": 0.3}),
        (STATISTICS, {"count_weight": 2.0**11}),
        (STATISTICS, {"clip": 1e7}),
        (STATISTICS, {"noise_multiplier": 1e12}),
        (STATISTICS, {"schema": Schema((20_000,), 2)}),
        (FEATURE_SUMS, {"signals": 0}),
        (FEATURE_SUMS, {"signals": MAX_VALUES}),
        (FEATURE_SUMS, {"first": (1 << 32) - 99}),
        (FEATURE_SUMS, {"first": -1}),
        (FEATURE_SUMS, {"seed": 1 << 64}),
        (FEATURE_SUMS, {"network": "transformer"}),
        (FEATURE_SUMS, {"network": "fourier"}),
        (FEATURE_SUMS, {"network": "fourier", "length_scale": 1.0, "width": 3}),
        (FEATURE_SUMS, {"length_scale": 1.0}),
        (FEATURE_SUMS, {"network": "linear", "weights": "0" * 64}),
        (FEATURE_SUMS, {"weights": "networks"}),
        (FEATURE_SUMS, {"width": 0}),
        (FEATURE_SUMS, {"width": 1025}),
        (FEATURE_SUMS, {"augmentation": "crop,crop"}),
        (FEATURE_SUMS, {"augmentation": "blur"}),
        (FEATURE_SUMS, {"augmentation": "crop,"}),
        (FEATURE_SUMS, {"schema": Schema((64,), 10)}),
        (FEATURE_SUMS, {"schema": Schema((64,), 10), "network": "linear"}),
        (FEATURE_SUMS, {"schema": Schema((64,), 10), "network": "linear", "augmentation": "", "projected": 3}),
        (FEATURE_SUMS, {"projected": 129}),
        (FEATURE_SUMS, {"auxiliary": "f" * 64}),
        (FEATURE_SUMS, {"projected": 3, "auxiliary": "F" * 64}),
        (FEATURE_SUMS, {"clip": 0.0}),
        (FEATURE_SUMS, {"count_weight": 0.0}),
        (IMAGES, {"schema": Schema((64,), 10)}),
        (IMAGES, {"backbone": ""}),
        (IMAGES, {"questions": 0}),
        (IMAGES, {"questions": 65}),
        (IMAGES, {"images_per_class": 0}),
        (IMAGES, {"images_per_class": MAX_VALUES}),
        (IMAGES, {"labels": "none"}),
        (IMAGES, {"seed": 1 << 64}),
        (IMAGES, {"settings": ""}),
        (IMAGES, {"settings": "[]"}),
        (IMAGES, {"settings": "{ }"}),
        (IMAGES, {"settings": '{"b":1,"a":1}'}),
        (IMAGES, {"settings": '{"a":NaN}'}),
        (IMAGES, {"settings": "[" * 10_000}),
        (IMAGES, {"settings": '{"a":"' + "a" * 20_000 + '"}'}),
        (MOMENT_SUMS, {"schema": Schema((64,), 10)}),
        (MOMENT_SUMS, {"backbone": ""}),
        (MOMENT_SUMS, {"backbone": "AB" * 32}),
        (MOMENT_SUMS, {"center": "../" * 20}),
        (MOMENT_SUMS, {"layers": 0}),
        (MOMENT_SUMS, {"layers": 257}),
        (MOMENT_SUMS, {"class_layers": 0}),
        (MOMENT_SUMS, {"class_layers": 20}),
        (MOMENT_SUMS, {"global_dimension": 0}),
        (MOMENT_SUMS, {"global_dimension": 1025}),
        (MOMENT_SUMS, {"class_dimension": 0}),
        (MOMENT_SUMS, {"class_dimension": 1024, "class_layers": 19}),
        (MOMENT_SUMS, {"pseudo_classes": 0}),
        (MOMENT_SUMS, {"pseudo_classes": 41}),
        (MOMENT_SUMS, {"pseudo_classes": 1 << 20}),
        (MOMENT_SUMS, {"pseudo_classes": -40}),
        (MOMENT_SUMS, {"classes_per_pseudo_class": 0}),
        (MOMENT_SUMS, {"classes_per_pseudo_class": 11}),
        (MOMENT_SUMS, {"schema": Schema((8, 8, 1), 5000), "pseudo_classes": 0, "classes_per_pseudo_class": 0}),
        (MOMENT_SUMS, {"seed": 1 << 64}),
        (MOMENT_SUMS, {"seed": -1}),
        (MOMENT_SUMS, {"clip": 2.0**-9}),
        (MOMENT_SUMS, {"clip": 17.0}),
        (MOMENT_SUMS, {"count_weight": 0.0}),
        (SCORES, {"schema": Schema((64,), 10)}),
        (SCORES, {"model": ""}),
        (SCORES, {"model": "AB" * 32}),
        (SCORES, {"noise_multiplier": 1e300}),
        (ANSWERED, {"inputs": ""}),
        (ANSWERED, {"number": 0}),
        (ANSWERED, {"number": 1 << 20}),
        (ANSWERED, {"answers": "logits"}),
        (ANSWERED, {"answers": "classes"}),
        (ANSWERED, {"answers": "classes", "other_weight": 0.0}),
        (ANSWERED, {"kept": 1}),
        (ANSWERED, {"kept": 11}),
        (ANSWERED, {"other_weight": -0.1}),
        (ANSWERED, {"teachers": "plain"}),
        (ANSWERED, {"teachers": "dp-sgd", "parts": 1}),
        (ANSWERED, {"teachers": "dp-sgd", "parts": 1, "sampling_probability": 0.1}),
        (ANSWERED, {"teachers": "head"}),
        (ANSWERED, {"parts": 1}),
        (ANSWERED, {"parts": 1025}),
        (ANSWERED, {"network": "transformer"}),
        (ANSWERED, {"network": "convnet"}),
        (ANSWERED, {"backbone": ""}),
        (ANSWERED, {"backbone": "", "features": 0, "schema": Schema((8,), 10), "network": "convnet"}),
        (ANSWERED, {"schema": Schema((8,), 10)}),
        (ANSWERED, {"features": 0}),
        (ANSWERED, {"seed": 1 << 64}),
        (ANSWERED, {"steps": 0}),
        (ANSWERED, {"steps": 100_001}),
        (ANSWERED, {"clip": 1.0}),
        (TRAINED, {"steps": 0}),
        (TRAINED, {"sampling_probability": 0.0}),
        (TRAINED, {"sampling_probability": 1.5}),
        (TRAINED, {"clip": 0.0}),
        (TRAINED, {"features": 1 << 21}),
        (ClassCounts(schema=Schema((3,), 2), noise_multiplier=1.0), {"noise_multiplier": -1.0}),
    ],
    ids=str,
)
def test_queries_that_make_no_sense_are_refused(query: Query, change: dict[str, object]) -> None:
    with pytest.raises(QueryError):
        replace(query, **change)


def test_long_messages_are_refused_unread() -> None:
    with pytest.raises(QueryError, match="larger than the limit"):
        decode(bytes(MAX_QUERY_BYTES + 1))


@many
@given(ANY_QUERY)
def test_plans_hold_together(query: Query) -> None:
    plan = query.plan()
    assert plan.noise_std == query.noise_multiplier * plan.sensitivity
    assert plan.event.noise_multiplier == query.noise_multiplier
    assert math.frexp(plan.grid)[0] == 0.5
    assert plan.grid * 16 <= plan.sensitivity or plan.response or plan.sensitivity == 0


@many
@given(st.lists(st.lists(st.integers(0, 4), max_size=3).map(tuple), min_size=1, max_size=4), st.integers(0, 2**32))
def test_layouts_split_what_they_join(shapes: list[tuple[int, ...]], seed: int) -> None:
    layout = Layout(tuple((f"block{index}", shape) for index, shape in enumerate(shapes)))
    flat = np.random.default_rng(seed).normal(size=layout.size)
    parts = layout.split(flat)
    assert [(name, part.shape) for name, part in parts.items()] == list(layout.blocks)
    assert np.array_equal(layout.join(parts), flat)
    with pytest.raises(ValueError, match="expected a vector"):
        layout.split(np.zeros(layout.size + 1))
