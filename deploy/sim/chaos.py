"""Kills silos and brings them back while a run goes on: nothing may be lost, nothing spent twice."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from silosynth.deploy.sim.engine import Engine

_PAUSE_SECONDS, _AWAY_SECONDS = (2.0, 8.0), (0.0, 5.0)
_DEATHS = 2  # of each silo, at most: on a slow machine a run would never end otherwise


@dataclass
class Chaos:
    """`step` is called again and again while a run is followed. No more than `most` silos are away at once."""

    engine: Engine
    silos: list[str]
    most: int
    seed: int
    tell: Callable[[str], None]
    _away: dict[str, float] = field(default_factory=dict)  # until when
    _next: float = 0.0

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)  # noqa: S311 (whom to kill; no secret)
        self._left = Counter(dict.fromkeys(self.silos, _DEATHS))

    def step(self) -> None:
        now = time.monotonic()
        for silo in [silo for silo, until in self._away.items() if until <= now]:
            self._revive(silo)
        victims = [silo for silo in self.silos if silo not in self._away and self._left[silo]]
        if victims and now >= self._next and len(self._away) < self.most:
            self._kill(self._chance.choice(victims))
            self._next = time.monotonic() + self._chance.uniform(*_PAUSE_SECONDS)

    def end(self) -> None:
        for silo in list(self._away):
            self._revive(silo)

    def _kill(self, silo: str) -> None:
        self.engine.kill(silo)
        self._left[silo] -= 1
        self._away[silo] = time.monotonic() + self._chance.uniform(*_AWAY_SECONDS)
        self.tell(f"Chaos: {silo} was killed")

    def _revive(self, silo: str) -> None:
        self.engine.revive(silo)
        del self._away[silo]
        self.tell(f"Chaos: {silo} is back")
