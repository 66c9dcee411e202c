"""What Prometheus is told of a server: public facts only, read from its folder whenever it asks.

Runs and what they asked for, silos by their registered names, finished datasets and their epsilon: all of it is in the
catalog or in run.toml. Nothing here depends on a record but through what silos released.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from rich.console import Console

from silosynth.deploy.runs import RunSummary, summaries
from silosynth.deploy.server_folder import ServerFolder
from silosynth.server.journal import JournalReader
from silosynth.server.releases.store import STORE_FOLDER, Store

Labelled = dict[tuple[str, ...], float]
_STATES = ("submitted", "running", "finished", "failed")


class ServerMetrics(Collector):
    def __init__(self, server: ServerFolder) -> None:
        self._server = server

    def collect(self) -> Iterable[Metric]:
        registered, runs = len(self._server.config().silos), summaries(self._server)
        states = Counter(run.state for run in runs)
        yield _gauge("silosynth_silos_registered", "Silos that server.toml lists", (), {(): registered})
        yield _gauge("silosynth_runs", "By how they stand", ("state",), {(name,): states[name] for name in _STATES})
        yield from self._silos(runs)
        yield self._releases()

    def _silos(self, runs: list[RunSummary]) -> Iterator[Metric]:
        """As the journals tell; of several entries about the same the last one holds."""
        attending: Labelled = {}
        spent: Labelled = {}
        for run in runs:
            for entry in JournalReader(self._server.runs / str(run.run) / "journal.jsonl").new_entries():
                if entry["kind"] in ("attending", "away") and run.state == "running":
                    attending[str(run.run), entry["silo"]] = float(entry["kind"] == "attending")
                if entry["kind"] == "released":
                    spent[(entry["silo"],)] = entry["epsilon_spent"]
        yield _gauge("silosynth_silo_attending", "1 while a silo attends a run", ("run", "silo"), attending)
        yield _gauge("silosynth_silo_epsilon_spent", "In all, as the silo's ledger last said", ("silo",), spent)

    def _releases(self) -> Metric:
        entries = Store(self._server.folder / STORE_FOLDER).entries()
        epsilons: Labelled = {(str(entry.release), entry.recipe): entry.epsilon or math.inf for entry in entries}
        return _gauge("silosynth_release_epsilon", "Of a finished dataset", ("release", "recipe"), epsilons)


def serve_metrics(server: ServerFolder, console: Console) -> None:
    """In a thread of this process, for as long as it lives. A port that is taken is no reason not to serve silos."""
    settings = server.config().metrics
    registry = CollectorRegistry()
    registry.register(ServerMetrics(server))
    try:
        start_http_server(settings.port, settings.host, registry)
    except OSError as error:
        console.print(f"No metrics: {settings.host}:{settings.port} cannot be used ({error.strerror})", style="yellow")


def _gauge(name: str, words: str, labels: Sequence[str], values: Labelled) -> Metric:
    metric = GaugeMetricFamily(name, words, labels=labels)
    for key, value in values.items():
        metric.add_metric(key, value)
    return metric
