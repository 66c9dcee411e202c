"""The coordinator: Flower's server app. Flower gathers the silos; everything else flows over the exchange."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

from silosynth.common.config import load
from silosynth.common.errors import SilosynthError
from silosynth.server.conduct import conduct
from silosynth.server.config import RunConfig, ServerConfig
from silosynth.server.exchange import Exchange
from silosynth.server.journal import Journal
from silosynth.server.releases.publisher import Publisher
from silosynth.server.witness import Witness

app = ServerApp()

_POLL_SECONDS = 1.0
_LOST_SECONDS = 90.0  # Flower replies within 70 s for a courier that died; after this an invitation counts as lost


@app.main()
def main(grid: Grid, context: Context) -> None:
    folder = Path(str(context.run_config["run-folder"]))
    journal = Journal(folder / "journal.jsonl")
    try:
        _run(grid, str(context.run_id), folder, journal)
    except BaseException as error:
        exit_code = error.exit_code if isinstance(error, SilosynthError) else 1
        journal.write("failed", error=type(error).__name__, message=str(error), exit_code=exit_code)
        raise


def _run(grid: Grid, run_id: str, folder: Path, journal: Journal) -> None:
    config = load(RunConfig, folder / "run.toml")
    server = load(ServerConfig, folder / "server.toml")
    home = server.exchange.certificate.parent  # the server's folder: shared by all runs
    witness = Witness(home / "witness.db")
    publisher = Publisher(home, witness)  # a server that cannot sign is told before any silo is asked
    exchange = Exchange(run_id, server.certificates(config.federation.silos), server.exchange, journal, witness)
    inviter = _Inviter(grid, run_id, exchange, config.federation.silos, journal)
    inviter.start()
    farewell = "the run failed"
    try:
        _gather(exchange, config, journal)
        conduct(config, folder, home / "work", exchange, publisher, journal)
        farewell = "the run is finished"
    finally:
        inviter.stop()
        exchange.dismiss(farewell)
    journal.write("finished")


def _gather(exchange: Exchange, config: RunConfig, journal: Journal) -> None:
    """Give every invited silo a moment to arrive; who is late is asked all the same when it comes."""
    federation = config.federation
    journal.write("gathering", silos=list(federation.silos))
    ends = time.monotonic() + federation.gather_seconds
    while time.monotonic() < ends and any(not _has_come(exchange, silo) for silo in federation.silos):
        time.sleep(0.1)


def _has_come(exchange: Exchange, silo: str) -> bool:
    """Whoever came and went is given its grace when it is asked."""
    return exchange.hello(silo) is not None or silo in exchange.left_out()


@dataclass
class _Sent:
    """An invitation without a reply so far. A SuperNode handles one message at a time, so one is enough."""

    message_id: str
    activated: str  # when the node had come online: a node that restarts forgets its messages
    last_seen: float


class _Inviter(threading.Thread):
    """Keeps every silo invited: once at the start, and again when its courier has left or its SuperNode restarted."""

    def __init__(self, grid: Grid, run_id: str, exchange: Exchange, silos: tuple[str, ...], journal: Journal) -> None:
        super().__init__(daemon=True)
        self._grid, self._run_id, self._exchange, self._journal = grid, run_id, exchange, journal
        self._silos = silos
        self._sent: dict[str, _Sent] = {}
        self._stopped = threading.Event()

    def run(self) -> None:
        while not self._stopped.wait(_POLL_SECONDS):
            try:
                self._hear_replies()
                self._invite_absent()
            except Exception as error:  # Flower's own trouble must not end the run: the streams go on without it
                self._journal.write("flower_trouble", error=type(error).__name__)

    def stop(self) -> None:
        self._stopped.set()
        self.join()

    def _hear_replies(self) -> None:
        """A reply means that the courier has left."""
        silo_of = {sent.message_id: silo for silo, sent in self._sent.items()}
        for reply in self._grid.pull_messages(list(silo_of)):
            silo = silo_of[reply.metadata.reply_to_message_id]
            del self._sent[silo]
            self._journal.write("courier_left", silo=silo, reason=_reason(reply))

    def _invite_absent(self) -> None:
        present = set(self._exchange.present())
        for silo in present & self._sent.keys():
            self._sent[silo].last_seen = time.monotonic()
        absent = [silo for silo in self._silos if silo not in present | set(self._exchange.left_out())]
        nodes = {node.name: node for node in self._grid.get_nodes()} if absent else {}
        due = [silo for silo in absent if silo in nodes and self._needs_invitation(silo, nodes[silo].last_activated_at)]
        ids = self._grid.push_messages([self._invitation(nodes[silo].node_id) for silo in due])
        for silo, message_id in zip(due, ids, strict=True):
            self._sent[silo] = _Sent(message_id, nodes[silo].last_activated_at, time.monotonic())
            self._journal.write("invited", silo=silo)

    def _needs_invitation(self, silo: str, activated: str) -> bool:
        sent = self._sent.get(silo)
        return sent is None or sent.activated != activated or time.monotonic() - sent.last_seen > _LOST_SECONDS

    def _invitation(self, node_id: int) -> Message:
        record = ConfigRecord({"run-id": self._run_id, "exchange": self._exchange.address})
        return Message(RecordDict({"invitation": record}), dst_node_id=node_id, message_type="query.invite")


def _reason(reply: Message) -> str:
    """Our own words only: either the courier's sanitized outcome or Flower's error code."""
    if reply.has_error():
        return f"Flower error {reply.error.code}"
    outcome = reply.content.config_records["outcome"]
    return str(outcome.get("farewell", outcome.get("message", "unknown")))
