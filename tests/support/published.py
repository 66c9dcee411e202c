"""Releases as a server publishes them, with receipts and heads that were truly signed; and a catalog of them."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from support.fake_federation import Identities

from silosynth.client.releases.access import Access
from silosynth.common import channels
from silosynth.common.heads import Head
from silosynth.common.queries import Mixtures, Query, digest
from silosynth.common.releases import Receipt, entry_hash
from silosynth.common.schema import Schema
from silosynth.deploy.provision import fingerprint
from silosynth.server.config import RunConfig, ServerConfig
from silosynth.server.evaluation import Evaluation
from silosynth.server.recipes.base import Product
from silosynth.server.releases.catalog import Catalog, serve_catalog
from silosynth.server.releases.entries import Entry
from silosynth.server.releases.keys import create_key
from silosynth.server.releases.publisher import Outcome, Publisher
from silosynth.server.releases.store import STORE_FOLDER, Store
from silosynth.server.releases.tokens import Tokens
from silosynth.server.witness import Witness

GREY = Schema((8, 8, 1), 3)
SENTENCE = "Means were denoised and given invented variety."


def question(schema: Schema = GREY, noise_multiplier: float = 2.0, mixtures: int = 3) -> Query:
    return Mixtures(
        schema=schema,
        noise_multiplier=noise_multiplier,
        mixtures=mixtures,
        sampling_probability=0.5,
        center=0.0,
        clip=1.0,
        count_weight=0.5,
    )


@dataclass
class Ledger:
    """A silo's, as far as the outside can tell: entries that hash and a key that signs."""

    silo: str
    key: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)
    sequence: int = 0
    last: bytes = b""

    def answer(self, query: Query) -> Receipt:
        self.sequence += 1
        event = query.event().to_proto().SerializeToString(deterministic=True)
        payload, created = hashlib.sha256(b"payload").digest(), "2026-01-01T00:00:00+00:00"
        hashed = entry_hash(self.last, self.sequence, "ward", digest(query), event, payload, created)
        receipt = Receipt(
            silo=self.silo,
            dataset="ward",
            query_digest=digest(query),
            event=query.event(),
            payload_digest=payload,
            sequence=self.sequence,
            previous_hash=self.last,
            entry_hash=hashed,
            created=created,
            public_key=self.key.public_key().public_bytes_raw(),
        )
        self.last = hashed
        return replace(receipt, signature=self.key.sign(receipt.signed_bytes()))

    def head(self) -> Head:
        head = Head(self.silo, self.sequence, self.last, self.key.public_key().public_bytes_raw())
        return replace(head, signature=self.key.sign(head.signed_bytes()))


def product(schema: Schema = GREY, per_class: int = 4, seed: int = 0, **others: Any) -> Product:
    values = np.random.default_rng(seed).uniform(-1, 1, (per_class, schema.classes, schema.dimension))
    return Product.of(values, schema, **others)


def run_config(schema: Schema = GREY, **changes: Any) -> RunConfig:
    document = {
        "name": "night shift",
        "recipe": "ldpdc",
        "records": {"shape": schema.shape, "classes": schema.classes},
        "privacy": {"epsilon": 4.0, "delta": 1e-5},
        "federation": {"silos": ["a"]},
    }
    return RunConfig.model_validate({**document, **changes})


class Server:
    """A server folder with key, store, tokens and a catalog's certificate."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.identities = folder, Identities(folder)
        self.publisher_key = create_key(folder)
        self.witness = Witness(folder / "witness.db")
        self.publisher = Publisher(folder, self.witness)
        self.store, self.tokens = Store(folder / STORE_FOLDER), Tokens(folder)
        self.silos: list[str] = []
        self._count = 0

    def publish(
        self,
        made: Product | None = None,
        config: RunConfig | None = None,
        ledgers: tuple[Ledger, ...] = (),
        queries: tuple[Query, ...] = (),
        evaluation: Evaluation | None = None,
    ) -> tuple[Path, Entry]:
        """The release folder of a run that asked every ledger every query, and its entry in the store."""
        config = config or run_config()
        schema = config.records.schema_of_records()
        ledgers, queries = ledgers or (Ledger("a"),), queries or (question(schema),)
        receipts = [ledger.answer(query) for ledger in ledgers for query in queries]
        for ledger in ledgers:
            self.witness.note(ledger.head())
        self._count += 1
        path = self.folder / f"release-{self._count}"
        outcome = Outcome(config, made or product(schema), SENTENCE, evaluation, queries, receipts)
        return path, self.publisher.publish(path, outcome)

    def config(self) -> ServerConfig:
        listed = [
            {"name": silo, "node_key": "none", "certificate": _fingerprint(self.identities.certificate(silo))}
            for silo in self.silos
        ]
        return ServerConfig.model_validate(
            {
                "flower": {"fleet": "127.0.0.1:9", "control": "127.0.0.1:9"},
                "exchange": self.identities.exchange_settings(),
                "catalog": {"port": 0, "consumer_port": 0},
                "silos": listed,
            }
        )

    @contextlib.contextmanager
    def catalog(self) -> Iterator[tuple[str, str]]:
        """Serving, at two addresses: for silos and for consumers."""
        server, port, consumer_port = serve_catalog(Catalog(self.store, self.tokens, self.config), self.config())
        try:
            yield f"127.0.0.1:{port}", f"127.0.0.1:{consumer_port}"
        finally:
            server.stop(0).wait()

    def consumer(self, address: str, token: str | None) -> Access:
        credentials = grpc.ssl_channel_credentials(self.identities.ca.read_bytes())
        metadata = () if token is None else (("authorization", f"Bearer {token}"),)
        return Access(address, self.publisher_key, credentials, metadata)

    def silo(self, silo: str, address: str) -> Access:
        certificate = self.identities.certificate(silo)
        credentials = channels.client_credentials(self.identities.ca, certificate, certificate.with_suffix(".key"))
        return Access(address, self.publisher_key, credentials)


def _fingerprint(certificate: Path) -> str:
    return fingerprint(x509.load_pem_x509_certificate(certificate.read_bytes()))
