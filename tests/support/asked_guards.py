"""Real guards with real ledgers, and couriers in threads that carry a server's questions to them over real TLS."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from support.fake_federation import Courier, Identities, open_exchange

from silosynth.common.datasets import Records
from silosynth.deploy.federation import LocalFederation
from silosynth.deploy.processes import Processes
from silosynth.server.assembly import Assembly
from silosynth.server.config import FederationSettings
from silosynth.server.journal import Journal

BUDGET = 1e6  # what the noise is has no part in how long things take


@contextlib.contextmanager
def asked_guards(folder: Path, shards: Sequence[Records], **allowed: Any) -> Iterator[tuple[LocalFederation, Assembly]]:
    identities = Identities(folder)
    with (
        Processes(folder / "logs") as processes,
        contextlib.closing(LocalFederation(folder, processes)) as federation,
    ):
        for number, shard in enumerate(shards):
            policy = {"consent": "auto", **allowed}
            federation.add_silo(f"silo-{number}", shard, {"epsilon": 2 * BUDGET, "delta": 1e-5}, policy)
            federation.start_guard(f"silo-{number}")
        for silo in federation.silos:
            federation.wait_for_guard(silo)
        with open_exchange(identities, federation.silos) as exchange:
            for silo in federation.silos:
                Courier(identities.courier(silo, federation.guard_address(silo)), exchange.address)
            settings = FederationSettings(silos=tuple(federation.silos), quorum=len(shards))
            yield federation, Assembly(exchange, settings, Journal(folder / "assembly.jsonl"))
