"""A federation in one process, without ledger or network: for experiments and for tests of recipes."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from silosynth.client.guard.entropy import Entropy, SystemEntropy
from silosynth.client.guard.mechanism import Bench
from silosynth.client.guard.noise import add_noise
from silosynth.client.mechanisms import MECHANISMS
from silosynth.common.datasets import Records
from silosynth.common.queries import Query, digest
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
    told_inside: dict[tuple[str, bytes], Integers] = field(default_factory=dict)
    """What silos that were asked have answered to themselves: drawn once, as in their ledgers."""

    def ask(self, step: Step) -> Summed:
        asked = Ask.of(step)
        collected = collection(asked.query)
        for silo, answer in self.answers(asked):
            collected.add(silo, answer)
        return collected.all()

    def answers(self, asked: Ask) -> Iterator[tuple[str, Integers]]:
        """Silo after silo."""
        self.artifacts.update(asked.artifacts)  # offered once, they stay for later steps
        for number, shard in enumerate(self.shards):
            silo = f"silo-{number}"
            exact = self.exact_answer(asked.query, shard, silo, inside=self.told_inside)
            yield silo, add_noise(exact, asked.query.plan(), self.entropy)

    def answer(
        self, query: Query, shard: Records, silo: str = "silo", own_artifacts: Mapping[str, bytes] | None = None
    ) -> Integers:
        """What one silo with these records says."""
        exact = self.exact_answer(query, shard, silo, own_artifacts)
        return add_noise(exact, query.plan(), self.entropy)

    def exact_answer(
        self,
        query: Query,
        shard: Records,
        silo: str = "silo",
        own_artifacts: Mapping[str, bytes] | None = None,
        inside: dict[tuple[str, bytes], Integers] | None = None,
    ) -> Integers:
        """The same before noise: for attackers' own copies of a mechanism. `inside` remembers inner answers."""
        told = {} if inside is None else inside

        def ask_inside(inner: Query, artifacts: Mapping[str, bytes]) -> Integers:
            key = (silo, digest(inner))
            if key not in told:
                told[key] = self.answer(inner, shard, silo, artifacts)
            return told[key]

        bench = Bench(
            self.entropy,
            lambda fraction: None,
            ChainMap(dict(own_artifacts or {}), self.artifacts).__getitem__,
            self.device,
            ask_inside,
            silo,
        )
        return MECHANISMS[query.mechanism](query, shard, bench)
