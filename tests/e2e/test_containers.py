"""`silosynth sim` in real containers, on an engine that the test starts if there is none.

Prints what images weigh, how long parts take to become healthy and what memory they need: pytest -m slow -s.
"""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from docker import DockerClient
from support.engine import build_arguments, engine
from support.storms import Storm

from silosynth.common.publication import verify_release
from silosynth.deploy.sim.docker_engine import DockerEngine
from silosynth.deploy.sim.engine import SimFolder
from silosynth.deploy.sim.session import Session

pytestmark = [pytest.mark.slow, pytest.mark.timeout(5400)]

REPOSITORY = Path(__file__).parents[2]
SUPPORT = REPOSITORY / "tests/support"
SILOSYNTH = str(Path(sys.executable).parent / "silosynth")
SILOS = [f"silo-{number}" for number in range(4)]


@dataclass(frozen=True)
class Sim:
    folder: Path
    options: tuple[str, ...]
    environment: dict[str, str]
    client: DockerClient

    def __call__(self, command: str, *arguments: str) -> str:
        full = [SILOSYNTH, "sim", command, *arguments, "--folder", str(self.folder)]
        done = subprocess.run(full, env=self.environment, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
        assert done.returncode == 0, f"{command} ended with {done.returncode}"
        return done.stdout

    def up(self, *arguments: str) -> dict[str, Any]:
        return dict(json.loads(self("up", *self.options, *arguments, "--format", "json")))

    def engine(self) -> DockerEngine:
        return DockerEngine(SimFolder(self.folder), self.client)

    def session(self) -> Session:
        return Session(SimFolder(self.folder), self.engine())


@pytest.fixture(scope="module")
def client() -> Iterator[DockerClient]:
    with engine() as client:
        yield client


@pytest.fixture(scope="module")
def options(client: DockerClient) -> tuple[str, ...]:
    arguments = [f"{name}={value}" for name, value in build_arguments(client).items()]
    return ("--build-network", "host", *(word for argument in arguments for word in ("--build-arg", argument)))


@pytest.fixture(scope="module")
def sim(client: DockerClient, options: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sim]:
    sim = Sim(tmp_path_factory.mktemp("containers") / "sim", ("--silos", "4", *options), dict(os.environ), client)
    try:
        yield sim
    finally:
        sim("down")
    assert left_by(sim) == []


def left_by(sim: Sim) -> list[str]:
    label, client = {"label": f"com.docker.compose.project={sim.engine().project}"}, sim.client
    containers, networks = client.containers.list(all=True, filters=label), client.networks.list(filters=label)
    return [str(left.name) for left in (*containers, *networks, *client.volumes.list(filters=label))]


def inside(sim: Sim, service: str, program: str) -> str:
    """What a Python program prints in a container."""
    code, output = sim.engine().container(service).exec_run(["python", "-c", program])
    assert code == 0, output
    return str(output.decode().strip())


def test_images_are_built_and_a_run_ends_with_a_release_at_every_silo(sim: Sim) -> None:
    told = sim.up("--budget", "50", "--epsilon", "4")
    for key in ("images", "seconds_to_healthy", "memory"):
        print(key, json.dumps(told[key], indent=1))
    verify_release(Path(told["release"]))
    assert sorted(told["pulled"]) == SILOS
    assert all(verify_release(Path(place)) for place in told["pulled"].values())
    assert all(3.5 < spent <= 4 for spent in told["spent"].values())


def test_the_dashboard_answers_whoever_has_the_token(sim: Sim) -> None:
    address, _, token = sim.engine().dashboard("test").split()
    trusted = ssl.create_default_context(cafile=str(sim.folder / "federation/server/ca.crt"))
    with urllib.request.urlopen(f"{address}/healthz", context=trusted) as answer:
        assert answer.status == 200
    assert "silo-3" in answer_of(address + "/federation", trusted, token)


def answer_of(address: str, trusted: ssl.SSLContext, token: str) -> str:
    request = urllib.request.Request(address, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, context=trusted) as answer:
        return str(answer.read().decode())


def test_no_part_is_root_or_can_write_to_its_own_file_system(sim: Sim) -> None:
    program = "import os; print(os.getuid() != 0, os.access('/opt/silosynth', os.W_OK), os.access('/usr', os.W_OK))"
    for service in ("guard-silo-0", "courier-silo-0", "superlink", "catalog"):
        assert inside(sim, service, program) == "True False False"
        capabilities = "print([l for l in open('/proc/self/status') if l.startswith('CapEff')][0].split()[1])"
        assert int(inside(sim, service, capabilities), 16) == 0


def test_the_guard_reaches_nobody_but_its_courier(sim: Sim) -> None:
    interfaces = "print(*[line.split(':')[0].strip() for line in open('/proc/net/dev').readlines()[2:]])"
    assert inside(sim, "guard-silo-0", interfaces) == "lo"
    dial = """
import socket
for host, port in (("server", 9092), ("192.0.2.1", 443), ("172.17.0.1", 22)):
    try:
        socket.create_connection((host, port), 3); print("reached", host)
    except OSError as error:
        print("no")
"""
    assert "reached" not in inside(sim, "guard-silo-0", dial)
    assert "reached server" in inside(sim, "courier-silo-0", dial)
    meeting = "import socket; s = socket.socket(socket.AF_UNIX); s.connect('/silo/socket/guard.sock'); print('met')"
    assert inside(sim, "courier-silo-0", meeting) == "met"


def test_a_courier_reaches_no_other_silo(sim: Sim) -> None:
    names = "import socket\ntry:\n print(socket.gethostbyname('courier-silo-1'))\nexcept OSError:\n print('unknown')"
    assert inside(sim, "courier-silo-0", names) == "unknown"


def test_the_courier_finds_neither_records_nor_ledger(sim: Sim) -> None:
    search = """
import os
wanted = {"records.npz", "ledger.db", "receipts.key", "silo.toml"}
found = [name for _, _, names in os.walk("/", onerror=None) for name in names if name in wanted]
print(sorted(set(found)))
"""
    assert inside(sim, "guard-silo-0", search) == str(["ledger.db", "receipts.key", "records.npz", "silo.toml"])
    assert inside(sim, "courier-silo-0", search) == "[]"


def test_a_killed_silo_neither_loses_nor_repeats_a_spend_and_the_superlink_may_die(sim: Sim) -> None:
    storm = Storm(sim.session(), quorum=2)
    try:
        storm.fault(["silo-0"], "attending", come_back=True)
        storm.fault(["silo-1"], "answered", come_back=True)
        storm.fault(["silo-2"], "answered", come_back=False)
        storm.fault(["superlink"], "answered", come_back=True)
    finally:
        storm.print()


def test_silos_join_while_it_is_up(sim: Sim) -> None:
    sim("scale", "5")
    told = sim.up("--budget", "50", "--epsilon", "4")
    assert "silo-4" in told["pulled"]
    assert told["spent"]["silo-4"] > 0


def test_processes_and_containers_make_the_same_release(
    client: DockerClient, options: tuple[str, ...], tmp_path: Path
) -> None:
    """With guards whose noise the test makes predictable: nothing of that is in silosynth."""
    path = os.pathsep.join((str(SUPPORT / "seeded"), str(SUPPORT)))
    processes = Sim(tmp_path / "processes", ("--engine", "process"), {**os.environ, "PYTHONPATH": path}, client)
    containers = Sim(tmp_path / "containers", options, dict(os.environ), client)
    containers.folder.mkdir()
    predictable = {"environment": {"PYTHONPATH": "/support/seeded:/support"}, "volumes": [f"{SUPPORT}:/support:ro"]}
    overridden = {"services": {f"guard-silo-{number}": predictable for number in range(2)}}
    (containers.folder / "compose.override.yml").write_text(yaml.safe_dump(overridden))
    made = []
    for sim in (processes, containers):
        try:
            told = sim.up("--silos", "2", "--epsilon", "4")
        finally:
            sim("down")
        with np.load(Path(told["release"]) / "data/train.npz") as data:
            made.append({name: data[name].tobytes() for name in data.files})
    assert made[0] == made[1]
