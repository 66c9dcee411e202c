"""Procedural images, and changes of them: needs nothing, so it runs everywhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from silosynth.common.auxiliary import procedural_images
from silosynth.common.config import Section
from silosynth.common.datasets.records import Labels, to_bytes_range
from silosynth.common.schema import Schema
from silosynth.server.generators.proposals.base import Pixels
from silosynth.server.generators.proposals.changes import changed


class ProceduralSource(Section):
    """Shapes, strokes, textures and fractals, drawn by arithmetic."""

    source: Literal["procedural"] = "procedural"

    def opened(self, schema: Schema) -> ProceduralProposals:
        return ProceduralProposals(schema)


@dataclass(frozen=True)
class ProceduralProposals:
    schema: Schema

    def fresh(self, labels: Labels, seed: int) -> Pixels:
        return to_bytes_range(procedural_images(self.schema, len(labels), seed).permute(0, 2, 3, 1).numpy())

    def varied(self, images: Pixels, labels: Labels, strength: float, seed: int) -> Pixels:
        return changed(images, labels, strength, seed, self.schema)
