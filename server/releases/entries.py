"""An entry of the catalog: what is told of a release before anybody fetches it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from silosynth.common.config import Section
from silosynth.common.publication.manifest import Digest, Manifest
from silosynth.common.publication.names import ReleaseName
from silosynth.protos.v1 import catalog_pb2


@dataclass(frozen=True)
class Score:
    """One line of the table of accuracies."""

    release: str
    epsilon: float | None
    delta: float
    accuracy: float | None


class Entry(Section):
    """entry.json in the store. The digest of its manifest is the release's identity."""

    name: str
    version: int
    parent: int | None
    created: str
    sha256: Digest
    manifest_size: Annotated[int, Field(gt=0)]
    size: int
    recipe: str
    records: int
    epsilon: float | None
    delta: float
    accuracy: float | None

    @classmethod
    def of(cls, manifest: Manifest, sha256: str, manifest_size: int, accuracy: float | None) -> Entry:
        naming = manifest.release
        return cls(
            name=naming.name,
            version=naming.version,
            parent=naming.parent.version if naming.parent else None,
            created=naming.created,
            sha256=sha256,
            manifest_size=manifest_size,
            size=manifest_size + manifest.size,
            recipe=manifest.run.recipe,
            records=manifest.records,
            epsilon=manifest.privacy.epsilon_worst,
            delta=manifest.privacy.delta,
            accuracy=accuracy,
        )

    @property
    def release(self) -> ReleaseName:
        return ReleaseName(self.name, self.version)

    def score(self) -> Score:
        return Score(str(self.release), self.epsilon, self.delta, self.accuracy)

    def to_proto(self, withdrawn: str | None) -> catalog_pb2.CatalogEntry:
        return catalog_pb2.CatalogEntry(
            name=self.name,
            version=self.version,
            parent=self.parent or 0,
            created=self.created,
            sha256=self.sha256,
            size=self.size,
            recipe=self.recipe,
            records=self.records,
            epsilon=math.inf if self.epsilon is None else self.epsilon,
            delta=self.delta,
            accuracy=self.accuracy,
            withdrawn=withdrawn,
        )
