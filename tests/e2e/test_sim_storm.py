"""Eight silos by processes, any three killed at any phase, and the SuperLink too: the run ends, nobody spends twice."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.storms import Storm

from silosynth.deploy.sim.engine import SimFolder
from silosynth.deploy.sim.process_engine import ProcessEngine
from silosynth.deploy.sim.session import Session
from silosynth.deploy.simulation import Simulation

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    home = SimFolder(tmp_path / "sim")
    session = Session(home, ProcessEngine(home))
    session.prepare(Simulation(silos=8, budget=100.0))
    try:
        session.engine.up()
        yield session
    finally:
        session.engine.down()


def test_a_storm(session: Session) -> None:
    storm = Storm(session, quorum=5)
    try:
        storm.fault(["silo-0", "silo-1", "silo-2"], "gathering", come_back=True)
        storm.fault(["silo-1", "silo-3", "silo-5"], "attending", come_back=True)
        storm.fault(["silo-2", "silo-4", "silo-6"], "asking", come_back=True)
        storm.fault(["silo-0", "silo-3", "silo-4"], "answered", come_back=False)
        storm.fault(["superlink"], "attending", come_back=True)
        storm.fault(["superlink"], "answered", come_back=True)
        storm.fault(["silo-0", "silo-1", "silo-5"], "attending", come_back=False)
    finally:
        storm.print()
