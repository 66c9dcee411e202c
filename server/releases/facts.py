"""Everything the documents of a release are written from: one noun, so that none of them can tell another story."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from silosynth.common.datasets.table_config import TableConfig
from silosynth.common.heads import Head
from silosynth.common.publication.accounting import privacy_of
from silosynth.common.publication.manifest import Code, Naming, Privacy, RunFacts
from silosynth.common.publication.names import ReleaseName
from silosynth.common.queries import Query, digest
from silosynth.common.releases import Receipt
from silosynth.common.schema import Schema
from silosynth.server.config import PublicationSettings
from silosynth.server.evaluation import Evaluation
from silosynth.server.releases.code_version import code_version
from silosynth.server.releases.entries import Score
from silosynth.server.releases.table_file import TableFile


@dataclass(frozen=True)
class Proof:
    """What the silos signed, and for which questions."""

    delta: float
    queries: Sequence[Query]
    receipts: Sequence[Receipt]
    heads: Sequence[Head]


@dataclass(frozen=True)
class ReleaseFacts:
    naming: Naming
    run: RunFacts
    words: PublicationSettings
    post_processing: str
    schema: Schema
    classes: tuple[str, ...]
    table: TableConfig | None
    records: int
    models: tuple[str, ...]
    proof: Proof
    evaluation: Evaluation | None
    earlier: tuple[Score, ...] = ()
    parent_withdrawn: str | None = None  # why

    @cached_property
    def receipts(self) -> list[Receipt]:
        """A repeated answer was charged once."""
        return list({(receipt.silo, receipt.entry_hash): receipt for receipt in self.proof.receipts}.values())

    @cached_property
    def queries(self) -> list[Query]:
        return list({digest(query): query for query in self.proof.queries}.values())

    @cached_property
    def privacy(self) -> Privacy:
        return privacy_of(self.receipts, self.proof.delta)

    @cached_property
    def code(self) -> Code:
        return code_version()

    @property
    def table_file(self) -> TableFile | None:
        """How rows are written; None for images."""
        return None if self.schema.is_image else TableFile(self.table, self.schema.dimension, self.classes)

    @property
    def silos(self) -> list[str]:
        return sorted(self.privacy.epsilon_by_silo)

    @property
    def history(self) -> str:
        naming = self.naming
        if naming.parent is None:
            return "It is the first of its name."
        before = ReleaseName(naming.name, naming.parent.version)
        if self.parent_withdrawn is not None:
            return f"It replaces {before}, which was withdrawn: {self.parent_withdrawn}"
        return f"It follows {before}."

    @property
    def adding_up(self) -> str:
        """Why an epsilon is not all there is to say where versions follow each other."""
        if self.naming.parent is None:
            return ""
        return " These are this version's figures alone: where versions are about the same records, losses add up."

    @property
    def day(self) -> str:
        return self.naming.created[:10]
