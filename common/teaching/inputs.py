"""Synthetic inputs on their way to teachers, with what the student thinks of them: one safetensors file.

`records` are uint8 images (count, height, width, channels) or float32 rows (count, columns) in [-1, 1]; `student` holds
its probabilities, float32 (count, classes). A guard reads the file from a server it does not trust.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import safetensors.numpy
from safetensors import SafetensorError

from silosynth.common.datasets.records import Features, to_unit_range
from silosynth.common.errors import QueryError
from silosynth.common.queries import TeacherAnswers

Probabilities = npt.NDArray[np.float32]


def encode_inputs(records: npt.NDArray[np.uint8] | Features, student: Probabilities) -> bytes:
    arrays = {"records": np.ascontiguousarray(records), "student": np.ascontiguousarray(student)}
    content: bytes = safetensors.numpy.save(arrays)
    return content


def decode_inputs(content: bytes, query: TeacherAnswers) -> tuple[Features, Probabilities]:
    """Flat float32 records in [-1, 1], and the student's probabilities of their classes."""
    try:
        arrays = safetensors.numpy.load(content)
    except (SafetensorError, KeyError, ValueError) as error:
        raise QueryError("the inputs are no safetensors file: ask the server's operator") from error
    records, student = arrays.get("records"), arrays.get("student")
    schema, expected = query.schema, np.uint8 if query.schema.is_image else np.float32
    if records is None or records.dtype != expected or records.shape != (query.number, *schema.shape):
        raise QueryError(f"the inputs hold no {query.number} {np.dtype(expected)} records of shape {schema.shape}")
    if student is None or student.dtype != np.float32 or student.shape != (query.number, schema.classes):
        raise QueryError(f"the inputs hold no student's probabilities of {schema.classes} classes")
    if not (np.isfinite(records).all() and np.isfinite(student).all()):
        raise QueryError("some inputs or probabilities are NaN or infinite")
    if student.min() < 0 or not np.allclose(student.sum(axis=1), 1, atol=1e-3):
        raise QueryError("some of the student's probabilities do not add up to 1")
    return to_unit_range(records.reshape(query.number, -1)), student
