"""A federation in one process, without ledger or network: for experiments and for tests of recipes."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass, field

from silosynth.client.guard.entropy import Entropy, SystemEntropy
from silosynth.client.guard.mechanism import Bench
from silosynth.client.guard.noise import add_noise
from silosynth.client.mechanisms import MECHANISMS
from silosynth.common.datasets import Records
from silosynth.common.queries import Query
from silosynth.common.releases import Integers
from silosynth.server.collecting import collection
from silosynth.server.recipes.base import Ask, Step, Summed


@dataclass(frozen=True)
class InProcess:
    """Each shard answers with its own noise, as a silo would."""

    shards: list[Records]
    entropy: Entropy = field(default_factory=SystemEntropy)
    artifacts: dict[str, bytes] = field(default_factory=dict)
    device: str = "cpu"

    def ask(self, step: Step) -> Summed:
        asked = Ask.of(step)
        self.artifacts.update(asked.artifacts)  # offered once, they stay for later steps
        collected = collection(asked.query)
        for number, shard in enumerate(self.shards):
            silo = f"silo-{number}"
            collected.add(silo, self._answer(silo, shard, asked.query, {}))
        return collected.all()

    def _answer(self, silo: str, shard: Records, query: Query, own_artifacts: Mapping[str, bytes]) -> Integers:
        bench = Bench(
            self.entropy,
            lambda fraction: None,
            ChainMap(dict(own_artifacts), self.artifacts).__getitem__,
            self.device,
            lambda inner, artifacts: self._answer(silo, shard, inner, artifacts),
            silo,
        )
        return add_noise(MECHANISMS[query.mechanism](query, shard, bench), query.plan(), self.entropy)
