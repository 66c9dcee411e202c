"""A release of statistics with all that it takes to synthesize from it, today or years later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from silosynth.common.backbones import Backbone, decode_backbone, encode_backbone
from silosynth.common.errors import DataError
from silosynth.common.queries import Moments, SufficientStatistics, decode, encode
from silosynth.common.synthesis.sps_parameters import SpsParameters

Arrays = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Release:
    """The answers to one query, summed over silos."""

    query: Moments | SufficientStatistics
    values: npt.NDArray[np.float64]  # in the order of the query's layout
    noise_std: float  # of every value: of the silos' noises together
    center: bytes = b""  # the file that the query names as its centre

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
        if not isinstance(query, Moments | SufficientStatistics):
            raise DataError(f"no images can be synthesized from statistics of this kind ({query.mechanism})")
        return cls(query, arrays["values"], float(arrays["noise_std"][0]), arrays["center"].tobytes())


def to_models(
    backbone: Backbone, parameters: SpsParameters, releases: Sequence[Release]
) -> dict[str, dict[str, npt.NDArray[Any]]]:
    """As a product carries them, by name: backbone, how images are made, and statistics for each stage."""
    named = {_name(number): release.to_arrays() for number, release in enumerate(releases)}
    chosen = parameters.model_dump_json(exclude_defaults=True, exclude={"devices", "backbone"}).encode()
    return {"backbone": _as_array(encode_backbone(backbone)), "parameters": _as_array(chosen), **named}


def from_models(models: Mapping[str, Arrays]) -> tuple[Backbone, SpsParameters, list[Release]]:
    """The opposite of `to_models`."""
    if "parameters" not in models or "backbone" not in models:
        raise DataError("this release holds no statistics to synthesize from: only those of the recipe sps do")
    backbone = decode_backbone(models["backbone"]["file"].tobytes(), "the release's backbone")
    parameters = SpsParameters.model_validate_json(models["parameters"]["file"].tobytes())
    count = sum(name.startswith(_name("")) for name in models)
    return backbone, parameters, [Release.from_arrays(models[_name(number)]) for number in range(count)]


def _as_array(content: bytes) -> dict[str, npt.NDArray[Any]]:
    return {"file": np.frombuffer(content, np.uint8)}


def _name(stage: int | str) -> str:
    return f"statistics-{stage}"
