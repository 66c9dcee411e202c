"""Chaos kills and revives, and comes to an end."""

import pytest

from silosynth.deploy.sim import chaos as module
from silosynth.deploy.sim.chaos import Chaos

SILOS = [f"silo-{number}" for number in range(8)]


class Recorder:
    """An engine that only notes who is away."""

    def __init__(self) -> None:
        self.away: set[str] = set()
        self.most = self.kills = 0

    def kill(self, name: str) -> None:
        assert name not in self.away
        self.away.add(name)
        self.kills += 1
        self.most = max(self.most, len(self.away))

    def revive(self, name: str) -> None:
        self.away.remove(name)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    monkeypatch.setattr(module, "_PAUSE_SECONDS", (0.0, 0.0))
    monkeypatch.setattr(module, "_AWAY_SECONDS", (0.0, 0.001))
    return Recorder()


def test_no_more_are_away_than_the_quorum_bears_and_it_ends(engine: Recorder) -> None:
    chaos = Chaos(engine, SILOS, most=3, seed=1, tell=lambda _: None)  # type: ignore[arg-type]
    for _ in range(10_000):
        chaos.step()
    chaos.end()
    assert engine.away == set()
    assert 1 <= engine.most <= 3
    assert engine.kills == 2 * len(SILOS)


def test_everyone_is_back_when_the_run_ends(engine: Recorder) -> None:
    chaos = Chaos(engine, SILOS, most=3, seed=1, tell=lambda _: None)  # type: ignore[arg-type]
    chaos.step()
    chaos.end()
    assert engine.kills == 1
    assert engine.away == set()
