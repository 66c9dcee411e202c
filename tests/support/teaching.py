"""Queries for teachers' answers about small records, and the inputs they name."""

from __future__ import annotations

from typing import Any

import numpy as np
from support.moments import shelve

from silosynth.common.datasets.records import Records
from silosynth.common.queries import TeacherAnswers
from silosynth.common.schema import Schema
from silosynth.common.teaching.inputs import encode_inputs

ROWS = Schema((4,), 3)
PROBABILITIES: dict[str, Any] = {"answers": "probabilities", "other_weight": 0.0}


def shelved_inputs(schema: Schema, number: int, seed: int = 0) -> str:
    """Random ones, with a student who thinks something of each."""
    dice = np.random.default_rng(seed)
    rows = dice.uniform(-1, 1, (number, *schema.shape)).astype(np.float32)
    records = ((rows + 1) * 127.5).astype(np.uint8) if schema.is_image else rows
    return shelve(encode_inputs(records, dice.dirichlet(np.ones(schema.classes), number).astype(np.float32)))


def answers_query(schema: Schema = ROWS, seed: int = 0, **changes: Any) -> TeacherAnswers:
    """Of a plain teacher, unless told otherwise; `seed` is that of the inputs."""
    number = changes.get("number", 5)
    usual: dict[str, Any] = {
        "noise_multiplier": 1.0,
        "inputs": shelved_inputs(schema, number, seed),
        "number": number,
        "answers": "gradients",
        "kept": 2,
        "other_weight": 0.2,
        "teachers": "plain",
        "parts": 1,
        "network": "linear",
        "backbone": "",
        "seed": 7,
        "steps": 5,
        "sampling_probability": 0.0,
        "clip": 0.0,
        "features": 0,
    }
    return TeacherAnswers(schema=schema, **usual | changes)


def sub_teachers(parts: int = 4, **changes: Any) -> TeacherAnswers:
    return answers_query(**{"teachers": "sub-teachers", "parts": parts} | changes)


def private_teacher(**changes: Any) -> TeacherAnswers:
    private = {"teachers": "dp-sgd", "steps": 6, "sampling_probability": 0.5, "clip": 1.0}
    return answers_query(**private | changes)


def clouds(count: int = 60, schema: Schema = ROWS, seed: int = 3) -> Records:
    """Rows of each class about a corner of its own: easy to learn."""
    dice = np.random.default_rng(seed)
    labels = dice.integers(0, schema.classes, count)
    centers = np.random.default_rng(0).choice([-0.7, 0.7], (schema.classes, schema.dimension))
    rows = np.clip(centers[labels] + dice.normal(0, 0.2, (count, schema.dimension)), -1, 1)
    return Records(rows.astype(np.float32).reshape(-1, *schema.shape), labels, schema)


def label_teacher(**changes: Any) -> TeacherAnswers:
    return answers_query(**{"teachers": "label-dp", "steps": 40} | PROBABILITIES | {"kept": 3} | changes)
