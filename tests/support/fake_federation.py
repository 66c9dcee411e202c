"""An exchange and couriers in threads, over real mutual TLS on loopback, with fake guards behind them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from silosynth.client.attendance import Invitation, attend
from silosynth.client.config import CourierConfig, ServerSection
from silosynth.common.errors import SilosynthError
from silosynth.deploy.provision import Authority, fingerprint, write_identity
from silosynth.server.config import ExchangeSettings
from silosynth.server.exchange import Exchange
from silosynth.server.journal import Journal
from silosynth.server.witness import Witness

RUN = "run-1"


class Identities:
    """One CA with a server and any number of silos, written to a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority.create("test federation")
        self.ca = folder / "ca.crt"
        self.ca.write_bytes(self.authority.certificate.public_bytes(Encoding.PEM))
        write_identity(folder, "server", *self.authority.issue("server", ["127.0.0.1"], server=True))

    def exchange_settings(self) -> ExchangeSettings:
        return ExchangeSettings(ca=self.ca, certificate=self.folder / "server.crt", key=self.folder / "server.key")

    def certificate(self, silo: str) -> Path:
        path = self.folder / f"{silo}.crt"
        if not path.exists():
            write_identity(self.folder, silo, *self.authority.issue(silo, [], server=False))
        return path

    def courier(self, silo: str, guard: str, patience: float = 20.0) -> CourierConfig:
        return CourierConfig(
            silo=silo,
            guard=guard,
            ca=self.ca,
            certificate=self.certificate(silo),
            key=self.folder / f"{silo}.key",
            node_key=self.folder / f"{silo}.node",
            server=ServerSection(fleet="127.0.0.1:9", exchange="127.0.0.1:0"),
            patience_seconds=patience,
        )


@dataclass
class Courier:
    """A courier in a thread; `outcome` is its farewell or its error."""

    config: CourierConfig
    exchange: str
    run_id: str = RUN
    outcome: str | SilosynthError | None = None
    thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self.thread = threading.Thread(target=self._attend, daemon=True)
        self.thread.start()

    def _attend(self) -> None:
        try:
            self.outcome = attend(self.config, Invitation(self.run_id, self.exchange))
        except SilosynthError as error:
            self.outcome = error


@contextlib.contextmanager
def open_exchange(identities: Identities, silos: list[str]) -> Iterator[Exchange]:
    journal = Journal(identities.folder / "journal.jsonl")
    certificates = {silo: x509.load_pem_x509_certificate(identities.certificate(silo).read_bytes()) for silo in silos}
    invited = {silo: fingerprint(certificate) for silo, certificate in certificates.items()}
    exchange = Exchange(
        RUN, invited, identities.exchange_settings(), journal, Witness(identities.folder / "witness.db")
    )
    try:
        yield exchange
    finally:
        exchange.dismiss("the test is over")
