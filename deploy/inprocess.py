"""A federation in one process, without ledger or network: for experiments and for tests of recipes."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from silosynth.client.guard.entropy import Entropy, SystemEntropy
from silosynth.client.guard.mechanism import Bench
from silosynth.client.guard.noise import add_noise
from silosynth.client.mechanisms import MECHANISMS
from silosynth.common.datasets import Records
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
        query, plan = asked.query, asked.query.plan()
        self.artifacts.update(asked.artifacts)  # offered once, they stay for later steps
        bench = Bench(self.entropy, lambda fraction: None, self.artifacts.__getitem__, self.device)
        total = np.zeros(plan.layout.size, dtype=np.int64)
        for shard in self.shards:
            exact = MECHANISMS[query.mechanism](query, shard, bench)
            total += add_noise(exact, plan, self.entropy)
        return Summed(plan.layout.split(total.astype(np.float64) * plan.grid), len(self.shards), plan)
