"""The publisher: names, writes, signs and stores the release of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from silosynth.common.heads import Head
from silosynth.common.publication.manifest import Naming, RunFacts
from silosynth.common.publication.names import ReleaseName, plain_name
from silosynth.common.queries import Query
from silosynth.common.releases import Receipt
from silosynth.server.config import RunConfig
from silosynth.server.evaluation import Evaluation
from silosynth.server.recipes.base import Product
from silosynth.server.releases.entries import Entry
from silosynth.server.releases.facts import Proof, ReleaseFacts
from silosynth.server.releases.folder import class_names, write_release
from silosynth.server.releases.keys import load_key, public_half
from silosynth.server.releases.store import STORE_FOLDER, Store
from silosynth.server.witness import Witness


@dataclass(frozen=True)
class Outcome:
    """What a run ended with."""

    config: RunConfig
    product: Product
    post_processing: str
    evaluation: Evaluation | None
    queries: Sequence[Query]
    receipts: Sequence[Receipt]


class Publisher:
    """Of one server folder: its key, its store, and the ledger heads it has witnessed."""

    def __init__(self, folder: Path, witness: Witness) -> None:
        self.store = Store(folder / STORE_FOLDER)
        self._key, self._witness = load_key(folder), witness

    def publish(self, path: Path, outcome: Outcome) -> Entry:
        """Write the release folder at `path` and take it into the store as the next version of the run's name."""
        facts = self._facts(outcome)
        write_release(path, outcome.product, facts, self._key)
        return self.store.add(path, public_half(self._key))

    def _facts(self, outcome: Outcome) -> ReleaseFacts:
        config, schema = outcome.config, outcome.config.records.schema_of_records()
        classes = class_names(config.records)  # before a version is taken: it may be refused
        extends = None if config.extends is None else ReleaseName.parse(config.extends).version
        naming = self.store.reserve(plain_name(config.name), extends)
        earlier = [entry for entry in self.store.entries() if entry.name == naming.name]
        proof = Proof(config.privacy.delta, outcome.queries, outcome.receipts, self._heads(outcome.receipts))
        return ReleaseFacts(
            naming=naming,
            run=RunFacts(name=config.name, recipe=config.recipe, config_digest=config.digest(), seed=config.seed),
            words=config.release,
            post_processing=outcome.post_processing,
            schema=schema,
            classes=classes,
            table=config.records.table,
            records=len(outcome.product.labels),
            models=tuple(sorted(outcome.product.models)),
            proof=proof,
            evaluation=outcome.evaluation,
            parent_withdrawn=self._withdrawn_before(naming),
            earlier=tuple(entry.score() for entry in earlier if self.store.withdrawn(entry.release) is None),
        )

    def _withdrawn_before(self, naming: Naming) -> str | None:
        return self.store.withdrawn(ReleaseName(naming.name, naming.parent.version)) if naming.parent else None

    def _heads(self, receipts: Sequence[Receipt]) -> list[Head]:
        """The newest head of every ledger that answered, as the silo signed it."""
        ledgers = sorted({(receipt.silo, receipt.public_key) for receipt in receipts})
        heads = (self._witness.recall(silo, public_key) for silo, public_key in ledgers)
        return [head for head in heads if head is not None]
