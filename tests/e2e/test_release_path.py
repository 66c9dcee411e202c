"""From a run to everyone's shelf: silos pull by themselves, a consumer pulls through cuts, strangers get nothing.

Every part is a process of its own; only the proxy that cuts connections lives in this one.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from support.cutting_proxy import cutting_proxy
from support.descendants import descendants, marked_environment
from support.fake_federation import Identities

pytestmark = pytest.mark.timeout(900)  # the first test waits for a whole demo
SILOSYNTH = str(Path(sys.executable).parent / "silosynth")
NAME = "demo/1"


def contents(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


class World:
    """What is left of a demo, its server started again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mark, self.environment = marked_environment()
        self.summary = json.loads(
            self.types("demo", "--folder", folder / "demo", "--silos", "2", "--format", "json").stdout
        )
        self.original = contents(Path(self.summary["release"]))
        self.federation = folder / "demo/federation"

    def types(self, *arguments: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
        command = [SILOSYNTH, *map(str, arguments)]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=600)
        assert done.returncode == code, done.stderr
        return done

    def serve(self) -> subprocess.Popen[str]:
        command = [SILOSYNTH, "server", "run", "--folder", str(self.federation / "server"), "--format", "json"]
        with (self.folder / "server.log").open("w") as log:
            server = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log, text=True)
        ends = time.monotonic() + 120
        while "fleet" not in (self.folder / "server.log").read_text():
            assert time.monotonic() < ends, (self.folder / "server.log").read_text()
            time.sleep(0.1)
        return server

    def access(self, name: str, **changes: str) -> Path:
        """The consumer's access file, with something changed in it."""
        document: dict[str, Any] = tomllib.loads((self.folder / "access.toml").read_text()) | changes
        path = self.folder / f"{name}.toml"
        path.write_text(tomli_w.dumps(document))
        return path


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = World(tmp_path_factory.mktemp("world"))
    server = world.serve()
    try:
        folder = ("--folder", world.federation / "server")
        world.types("server", "grant", "alice", "--access", world.folder / "access.toml", *folder)
        yield world
    finally:
        server.terminate()
        server.wait(60)
    assert descendants(world.mark) == []


def test_every_silo_has_pulled_and_verified_the_release(world: World) -> None:
    assert len(world.summary["pulled"]) == 2
    for folder in map(Path, world.summary["pulled"].values()):
        world.types("release", "verify", folder)
        assert contents(folder) == world.original


def test_a_consumer_pulls_every_byte_through_two_cuts(world: World) -> None:
    address = tomllib.loads((world.folder / "access.toml").read_text())["address"]
    size = sum(map(len, world.original.values()))
    with cutting_proxy(address, [1 << 40, size // 3, size // 3]) as proxy:  # the first connection only describes
        shelf = ("--shelf", world.folder / "shelf")
        world.types("release", "pull", NAME, "--access", world.access("cut", address=proxy.address), *shelf)
        assert proxy.cut == 2
    assert contents(world.folder / "shelf" / NAME) == world.original


def test_without_a_valid_token_there_is_nothing(world: World) -> None:
    self_made = world.access("stranger", token="x" * 43)
    shelf = world.folder / "strangers"
    for arguments in (("list",), ("show", NAME), ("pull", NAME)):
        done = world.types("release", *arguments, "--access", self_made, "--shelf", shelf, code=20)
        assert "demo/1" not in done.stdout
    assert not shelf.exists()


def test_with_another_ca_there_is_nothing(world: World, tmp_path: Path) -> None:
    other = world.access("other", ca=Identities(tmp_path).ca.read_text())
    world.types("release", "pull", NAME, "--access", other, "--shelf", tmp_path / "shelf", code=20)
    assert not (tmp_path / "shelf").exists()


def test_a_silo_judges_the_release_on_its_own_records_and_keeps_the_result(world: World) -> None:
    kit = world.federation / "kits/silo-0"
    before = contents(kit / "guard")
    done = world.types("silo", "evaluate", NAME, "--kit", kit, "--seeds", "1", "--format", "json")
    assert json.loads(done.stdout)["accuracy"] > 0.5
    assert contents(kit / "guard") == before


def test_a_silo_that_was_away_gets_it_when_it_connects(world: World) -> None:
    world.types("provision", world.federation, "--add-silo", "late")
    kit = world.federation / "kits/late"
    pulled = json.loads(world.types("silo", "pull", "--kit", kit, "--format", "json").stdout)
    assert contents(Path(pulled[NAME])) == world.original
    assert json.loads(world.types("silo", "pull", "--kit", kit, "--format", "json").stdout) == {}
