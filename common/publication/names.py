"""What a release is called: "demo/3" is the third version of demo."""

from __future__ import annotations

import re
from dataclasses import dataclass

from silosynth.common.errors import ConfigError

NAME_PATTERN = r"[a-z0-9][a-z0-9._-]{0,62}"
_LARGEST_VERSION = 999_999


@dataclass(frozen=True, order=True)
class ReleaseName:
    name: str
    version: int

    def __post_init__(self) -> None:
        if not re.fullmatch(NAME_PATTERN, self.name) or not 1 <= self.version <= _LARGEST_VERSION:
            raise ConfigError(f"{self.name}/{self.version} is not the name of a release, such as demo/3")

    def __str__(self) -> str:
        return f"{self.name}/{self.version}"

    @classmethod
    def parse(cls, text: str) -> ReleaseName:
        name, _, version = text.rpartition("/")
        if not re.fullmatch(r"[1-9][0-9]{0,5}", version):
            raise ConfigError(f"{text!r} is not the name of a release: give name and version, such as demo/3")
        return cls(name, int(version))


def plain_name(title: str) -> str:
    """The name under which a run of this title is released: small letters, digits and hyphens."""
    plain = re.sub(r"[^a-z0-9._]+", "-", title.lower()).strip("-._")[:63]
    if not plain:
        raise ConfigError(f"the run's name {title!r} has no letter or digit to name a release by: choose another name")
    return plain
