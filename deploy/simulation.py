"""What a simulated federation is: its silos' records, what they allow, and what a run asks. Every engine shares it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from silosynth.client.config import SiloConfig
from silosynth.common.config import Section
from silosynth.common.config import load as load_toml
from silosynth.common.datasets import Records, load, save_npz
from silosynth.common.errors import DataError
from silosynth.common.partition import partition
from silosynth.common.queries import Query
from silosynth.common.shipped import shipped_backbones
from silosynth.deploy.kit_texts import Answers
from silosynth.deploy.kits import GUARD_SOCKET, FederationFolder, Kit
from silosynth.server.recipes import Recipe, recipe_named

_RECORDS = "records.npz"


class Simulation(Section):
    """Records dealt to silos, each of which allows every mechanism within its budget."""

    silos: int = Field(5, ge=1)
    data: str = Field("digits", description="digits, or a path to records")
    classes: int | None = Field(None, description="where the records' format does not tell")
    partition: str = "iid"
    budget: float = Field(10.0, gt=0, description="what each silo's ledger allows in total")
    delta: float = Field(1e-5, gt=0, lt=1)
    seed: int = Field(0, description="of public randomness; never of privacy noise")

    def records(self) -> tuple[Records, Records | None]:
        """For training, and for public tests where the data come with such."""
        options = {} if self.classes is None else {"classes": self.classes}
        try:
            return load(self.data, split="train", **options), load(self.data, split="test", **options)
        except DataError:  # one set only, or something is wrong, which is told now
            return load(self.data, **options), None

    def names(self) -> list[str]:
        return [f"silo-{number}" for number in range(self.silos)]

    def shards(self, train: Records) -> list[Records]:
        return [train.take(part) for part in partition(self.partition, train.labels, self.silos, self.seed)]

    def late_shard(self, train: Records, number: int) -> Records:
        """For a silo that joins later: dealt anew, so it shares people with others, as neighbouring hospitals do."""
        return train.take(partition(self.partition, train.labels, self.silos, self.seed + number)[number % self.silos])

    def settle(self, federation: FederationFolder, silo: str, shard: Records, address: str = GUARD_SOCKET) -> Kit:
        """A new silo whose people have filled in its silo.toml."""
        policy = {"mechanisms": sorted(Query.kinds), "backbones": list(shipped_backbones()), "consent": "auto"}
        budget = {"epsilon": self.budget, "delta": self.delta}
        return settle(federation, silo, shard, budget, policy, address)


def settle(
    federation: FederationFolder,
    silo: str,
    shard: Records,
    budget: Mapping[str, float],
    policy: Mapping[str, Any],
    address: str = GUARD_SOCKET,
) -> Kit:
    data = {"source": "npz", "path": f"../records/{_RECORDS}", "classes": shard.schema.classes}
    kit = federation.add_silo(silo, address, Answers(data, budget, policy))
    kit.records.mkdir(mode=0o700)
    save_npz(shard, kit.records / _RECORDS)
    load_toml(SiloConfig, kit.silo_toml)  # what is wrong with it is told here, not in a log
    return kit


class Question(Section):
    """What a run of a simulated federation asks of its silos."""

    name: str = "demo"
    recipe: str = "ldpdc"
    epsilon: float = Field(4.0, gt=0)
    quorum: int = Field(1, ge=1)
    grace_seconds: float = Field(30.0, gt=0)

    def run_config(
        self, simulation: Simulation, silos: Sequence[str], train: Records, evaluation: dict[str, Any]
    ) -> dict[str, Any]:
        """run.toml."""
        return {
            "name": self.name,
            "recipe": self.recipe,
            "seed": simulation.seed,
            "parameters": quick(recipe_named(self.recipe)),
            "records": {"shape": list(train.schema.shape), "classes": train.schema.classes},
            "privacy": {"epsilon": self.epsilon, "delta": simulation.delta},
            "federation": {"silos": list(silos), "quorum": self.quorum, "grace_seconds": self.grace_seconds},
            "evaluation": evaluation,
        }


def quick(recipe: Recipe) -> dict[str, Any]:
    """A simulation is not waited for: recipes that have presets are shown with their quick one."""
    return {"preset": "quick"} if "preset" in recipe.parameters.model_fields else {}


def public_test(test: Records, path: Path) -> dict[str, Any]:
    """The table of run.toml that names these records, once they are written to `path`."""
    save_npz(test, path)
    return {"source": "npz", "path": str(path), "classes": test.schema.classes}
