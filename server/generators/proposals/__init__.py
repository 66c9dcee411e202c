"""Where candidate images of Private Evolution come from: one file per source; to add one is to add a line here."""

from typing import Annotated, TypeAlias

from pydantic import Field

from silosynth.server.generators.proposals.base import Pixels, Proposals
from silosynth.server.generators.proposals.command import CommandSource
from silosynth.server.generators.proposals.diffusers import DiffusersSource
from silosynth.server.generators.proposals.folder import FolderSource
from silosynth.server.generators.proposals.procedural import ProceduralSource

Source: TypeAlias = Annotated[
    ProceduralSource | FolderSource | CommandSource | DiffusersSource, Field(discriminator="source")
]

__all__ = ["Pixels", "ProceduralSource", "Proposals", "Source"]
