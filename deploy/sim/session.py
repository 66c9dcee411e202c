"""A simulated federation from its first folder to the release at every silo, whatever engine runs it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from silosynth.client.releases.shelf import Shelf
from silosynth.common.config import parse
from silosynth.common.errors import ConfigError, RunFailed
from silosynth.common.publication.names import ReleaseName
from silosynth.deploy.runs import follow
from silosynth.deploy.server_folder import write_toml
from silosynth.deploy.sim.chaos import Chaos
from silosynth.deploy.sim.engine import SIM_TOML, Engine, SimFolder
from silosynth.deploy.simulation import Question, Simulation, public_test
from silosynth.deploy.watch import RunView
from silosynth.server.config import RunConfig

_PULL_SECONDS, _POLL_SECONDS = 300.0, 0.2


@dataclass(frozen=True)
class Session:
    home: SimFolder
    engine: Engine

    def prepare(self, simulation: Simulation) -> None:
        """Make the folders; those that are there already must be of the same simulation."""
        if (self.home.folder / SIM_TOML).exists():
            if self.home.simulation() != simulation:
                raise ConfigError(
                    f"{self.home.folder} holds another federation, as {SIM_TOML} in it says: choose another --folder"
                )
            return
        self.home.folder.mkdir(parents=True, exist_ok=True)
        train, _ = simulation.records()
        federation = self.engine.create()
        for silo, shard in zip(simulation.names(), simulation.shards(train), strict=True):
            simulation.settle(federation, silo, shard, self.engine.guard_address(silo))
        write_toml(self.home.folder / SIM_TOML, simulation)

    def run(self, question: Question, console: Console, chaos: bool = False) -> tuple[Path, RunView]:
        """One run to its end; with `chaos`, silos are killed and brought back all the while."""
        silos = self.home.silos()
        run = self.engine.submit(self.run_config(question))
        monkey = Chaos(self.engine, silos, len(silos) - question.quorum, self.home.simulation().seed, console.print)
        try:
            return run, follow(run, console, monkey.step if chaos else lambda: None)
        finally:
            monkey.end()

    def pulled(self, release: ReleaseName) -> dict[str, Path]:
        """Where each silo has put a release, as soon as all of them have pulled and verified it."""
        places = {silo: Shelf(self.home.kit(silo).releases).place(release) for silo in self.home.silos()}
        self._wait_until(lambda: all(place.is_dir() for place in places.values()), f"every silo to have {release}")
        return places

    def scale(self, silos: int) -> None:
        """Silos join, with records dealt anew, or the last ones leave. Who leaves keeps his folder."""
        listed, simulation = self.home.silos(), self.home.simulation()
        for silo in listed[silos:]:
            self.home.federation.remove_silo(silo)
        if silos > len(listed):
            train, _ = simulation.records()
            first = 1 + max(
                int(folder.name.rpartition("-")[2]) for folder in (self.home.federation.folder / "kits").iterdir()
            )
            for number in range(first, first + silos - len(listed)):
                silo, shard = f"silo-{number}", simulation.late_shard(train, number)
                simulation.settle(self.home.federation, silo, shard, self.engine.guard_address(silo))
        self.engine.up()

    def run_config(self, question: Question) -> RunConfig:
        """For all silos there are now."""
        simulation = self.home.simulation()
        train, test = simulation.records()
        path = self.home.server.folder / "public-test.npz"
        evaluation = {} if test is None else {"test": public_test(test, path) | {"path": self.engine.server_path(path)}}
        return parse(RunConfig, question.run_config(simulation, self.home.silos(), train, evaluation), "run")

    def _wait_until(self, so: Callable[[], bool], what: str) -> None:
        ends = time.monotonic() + _PULL_SECONDS
        while not so():
            if time.monotonic() > ends:
                raise RunFailed(f"waited {_PULL_SECONDS:g} s for {what}: see `silosynth sim logs`")
            time.sleep(_POLL_SECONDS)
