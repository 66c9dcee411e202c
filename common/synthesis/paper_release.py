"""A release of moments with all that it takes to synthesize from it, today or years later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from silosynth.common.backbones import Backbone, decode_backbone, encode_backbone
from silosynth.common.errors import DataError
from silosynth.common.queries import Moments, decode, encode
from silosynth.common.statistics import Statistics, decode_center

Arrays = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Release:
    """The answers to one query, summed over silos."""

    query: Moments
    values: npt.NDArray[np.float64]  # in the order of the query's layout
    noise_std: float  # of every value: of the silos' noises together
    center: bytes = b""  # the file that the query names as its centre

    def decoded_center(self) -> Statistics | None:
        return decode_center(self.center, self.query) if self.query.center else None

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        return {
            "query": np.frombuffer(encode(self.query), np.uint8),
            "values": self.values,
            "noise_std": np.array([self.noise_std]),
            "center": np.frombuffer(self.center, np.uint8),
        }

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        query = decode(arrays["query"].tobytes())
        if not isinstance(query, Moments):
            raise DataError(f"these are statistics of another kind ({query.mechanism}): no moments to synthesize from")
        return cls(query, arrays["values"], float(arrays["noise_std"][0]), arrays["center"].tobytes())


def to_models(backbone: Backbone, releases: Sequence[Release]) -> dict[str, dict[str, npt.NDArray[Any]]]:
    """As a product carries them, by name: the backbone, and one set of statistics for each stage."""
    named = {_name(number): release.to_arrays() for number, release in enumerate(releases)}
    return {"backbone": {"file": np.frombuffer(encode_backbone(backbone), np.uint8)}, **named}


def from_models(models: Mapping[str, Arrays]) -> tuple[Backbone, list[Release]]:
    """The opposite of `to_models`."""
    backbone = decode_backbone(models["backbone"]["file"].tobytes(), "the release's backbone")
    count = sum(name.startswith(_name("")) for name in models)
    return backbone, [Release.from_arrays(models[_name(number)]) for number in range(count)]


def _name(stage: int | str) -> str:
    return f"statistics-{stage}"
