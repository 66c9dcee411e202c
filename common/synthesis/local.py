"""Local generation of SPS and SPS+: what the server asks and a silo understands, and how images lie in the answer."""

from __future__ import annotations

import json
from typing import Any

from silosynth.common.config import parse
from silosynth.common.errors import ConfigError, QueryError
from silosynth.common.queries import LocalSynthesis
from silosynth.common.queries.local_synthesis import canonical_json
from silosynth.common.synthesis.settings import Workshop
from silosynth.common.synthesis.sps_parameters import SpsParameters

_FIELDS_OF_THE_QUERY = {"images_per_class", "labels"}
_NOT_FOR_SILOS = {"generation", "backbone", *Workshop.model_fields}  # a silo has the file, and its own devices


def settings_of(parameters: SpsParameters) -> str:
    """All that a silo must know beside the fields of the query."""
    return canonical_json(parameters.model_dump(mode="json", exclude=_FIELDS_OF_THE_QUERY | _NOT_FOR_SILOS))


def parameters_of(query: LocalSynthesis, device: str) -> SpsParameters:
    """The opposite: QueryError if another version's parameters were sent, or values that make no sense."""
    given: dict[str, Any] = json.loads(query.settings)
    if unexpected := sorted(given.keys() & (_FIELDS_OF_THE_QUERY | _NOT_FOR_SILOS)):
        raise QueryError(f"settings: {', '.join(unexpected)} cannot be chosen for a silo")
    own = {name: getattr(query, name) for name in _FIELDS_OF_THE_QUERY} | {"devices": (device,)}
    try:
        return parse(SpsParameters, given | own, "settings")
    except ConfigError as error:
        raise QueryError(str(error)) from error
