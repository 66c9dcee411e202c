"""The public shape of the records all silos of a federation hold."""

from __future__ import annotations

import math
from dataclasses import dataclass

from silosynth.common.errors import QueryError
from silosynth.protos.v1 import query_pb2

MAX_DIMENSION = 1 << 24
MAX_CLASSES = 1 << 16


@dataclass(frozen=True)
class Schema:
    """Shape of one record, (height, width, channels) or (columns,), and the number of classes.

    Records are float32 in [-1, 1], labels are integers in [0, classes).
    """

    shape: tuple[int, ...]
    classes: int

    def __post_init__(self) -> None:
        if len(self.shape) not in (1, 3) or any(side < 1 for side in self.shape):
            raise QueryError(f"a record's shape is (columns,) or (height, width, channels), not {self.shape}")
        if self.dimension > MAX_DIMENSION or not 1 <= self.classes <= MAX_CLASSES:
            raise QueryError(f"{self.dimension} values a record and {self.classes} classes are out of range")

    @property
    def dimension(self) -> int:
        return math.prod(self.shape)

    @property
    def is_image(self) -> bool:
        return len(self.shape) == 3

    def to_proto(self) -> query_pb2.Schema:
        return query_pb2.Schema(shape=self.shape, classes=self.classes)

    @classmethod
    def from_proto(cls, message: query_pb2.Schema) -> Schema:
        return cls(tuple(message.shape), message.classes)
