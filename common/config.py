"""TOML files into frozen models that forbid unknown keys."""

from __future__ import annotations

import hashlib
import tomllib
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from silosynth.common.errors import ConfigError


class Section(BaseModel):
    """A table of a TOML file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def digest(self) -> str:
        """Identifies the effective configuration, defaults included."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()


class Choices(Section):
    """What can be chosen about how something is made: numbers are finite."""

    model_config = ConfigDict(allow_inf_nan=False)


Model = TypeVar("Model", bound=Section)


def load(model: type[Model], path: Path) -> Model:
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such file") from error
    except (ValueError, RecursionError) as error:  # odd bytes, numbers of thousands of digits, brackets without end
        raise ConfigError(f"{path}: not TOML: {error}") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    return parse(model, data, str(path))


def parse(model: type[Model], data: object, source: str) -> Model:
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise ConfigError(f"{source}: " + "; ".join(_complaints(error))) from error


def _complaints(error: ValidationError) -> list[str]:
    return [
        f"{'.'.join(map(str, problem['loc'])) or 'file'}: "
        + ("unknown key" if problem["type"] == "extra_forbidden" else problem["msg"])
        for problem in error.errors(include_url=False)
    ]
