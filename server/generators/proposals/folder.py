"""Public images from a folder, and changes of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from silosynth.common.config import Section
from silosynth.common.datasets.image_folder import fitted_image, image_files
from silosynth.common.datasets.records import Labels
from silosynth.common.errors import ConfigError
from silosynth.common.schema import Schema
from silosynth.server.generators.proposals.base import Pixels, require_pictures
from silosynth.server.generators.proposals.changes import changed


class FolderSource(Section):
    """Images that anybody may see: PNG and JPEG files, at any depth, of any size. Never a silo's own."""

    source: Literal["folder"]
    folder: Path = Field(description="of public images")

    def opened(self, schema: Schema) -> FolderProposals:
        require_pictures(schema, self.source)
        files = image_files(self.folder)
        if not files:
            raise ConfigError(f"proposals.folder: {self.folder} holds no PNG or JPEG files: name a folder that does")
        return FolderProposals(schema, tuple(files))


@dataclass(frozen=True)
class FolderProposals:
    schema: Schema
    files: tuple[Path, ...]

    def fresh(self, labels: Labels, seed: int) -> Pixels:
        """As many different ones as there are."""
        generator, count = np.random.default_rng(seed), len(labels)
        rounds = -(-count // len(self.files))
        chosen = np.concatenate([generator.permutation(len(self.files)) for _ in range(rounds)])[:count]
        return np.stack([fitted_image(self.files[number], self.schema.shape) for number in chosen])

    def varied(self, images: Pixels, labels: Labels, strength: float, seed: int) -> Pixels:
        return changed(images, labels, strength, seed, self.schema)
