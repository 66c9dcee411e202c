"""What Prometheus is told."""

import json
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

from silosynth.deploy.addresses import free_port
from silosynth.deploy.kits import FederationFolder, Place
from silosynth.deploy.metrics import serve_metrics
from silosynth.deploy.server_folder import ServerFolder, write_toml
from silosynth.server.config import FederationSettings, PrivacySettings, RunConfig, SchemaSettings

JOURNAL = [
    {"kind": "attending", "silo": "a", "time": 1.0},
    {"kind": "attending", "silo": "b", "time": 2.0},
    {"kind": "released", "silo": "a", "time": 3.0, "bytes": 10, "epsilon_spent": 1.5, "epsilon_total": 8.0},
    {"kind": "away", "silo": "a", "time": 4.0},
]


@pytest.fixture
def server(tmp_path: Path) -> ServerFolder:
    federation = FederationFolder.create(tmp_path / "f", Place(("127.0.0.1",), metrics_port=free_port()))
    federation.add_silo("a")
    federation.add_silo("b")
    return ServerFolder(federation.server)


def scraped(server: ServerFolder) -> dict[tuple[str, ...], float]:
    serve_metrics(server, Console(quiet=True))
    with urllib.request.urlopen(f"http://127.0.0.1:{server.config().metrics.port}/metrics") as answer:
        families = text_string_to_metric_families(answer.read().decode())
    return {(s.name, *s.labels.values()): s.value for family in families for s in family.samples}


def test_a_running_run_shows_who_attends_and_what_was_spent(server: ServerFolder) -> None:
    run = server.runs / "1"
    run.mkdir(parents=True)
    config = RunConfig(
        name="first",
        recipe="prototypes",
        records=SchemaSettings(shape=(8, 8, 1), classes=10),
        privacy=PrivacySettings(epsilon=1.0),
        federation=FederationSettings(silos=("a", "b")),
    )
    write_toml(run / "run.toml", config)
    (run / "journal.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in JOURNAL))
    told = scraped(server)
    assert told["silosynth_silos_registered",] == 2
    assert told["silosynth_runs", "running"] == 1
    assert told["silosynth_silo_attending", "1", "a"] == 0
    assert told["silosynth_silo_attending", "1", "b"] == 1
    assert told["silosynth_silo_epsilon_spent", "a"] == 1.5


def test_a_taken_port_is_told_and_no_more(server: ServerFolder) -> None:
    scraped(server)
    console = Console(record=True, quiet=True)
    serve_metrics(server, console)
