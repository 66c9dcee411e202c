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
            collected.add(silo, self.answer(asked.query, shard, silo))
        return collected.all()

    def answer(
        self, query: Query, shard: Records, silo: str = "silo", own_artifacts: Mapping[str, bytes] | None = None
    ) -> Integers:
        """What one silo with these records says."""
        exact = self.exact_answer(query, shard, silo, own_artifacts)
        return add_noise(exact, query.plan(), self.entropy)

    def exact_answer(
        self, query: Query, shard: Records, silo: str = "silo", own_artifacts: Mapping[str, bytes] | None = None
    ) -> Integers:
        """The same before noise: for attackers' own copies of a mechanism."""
        bench = Bench(
            self.entropy,
            lambda fraction: None,
            ChainMap(dict(own_artifacts or {}), self.artifacts).__getitem__,
            self.device,
            lambda inner, artifacts: self.answer(inner, shard, silo, artifacts),
            silo,
        )
        return MECHANISMS[query.mechanism](query, shard, bench)
