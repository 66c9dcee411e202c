"""The coordinator: Flower's server app. Flower gathers the silos; everything else flows over the exchange."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

from silosynth.common.config import load
from silosynth.common.errors import SilosynthError
from silosynth.server.conduct import conduct
from silosynth.server.config import RunConfig, ServerConfig
from silosynth.server.exchange import Exchange
from silosynth.server.journal import Journal

app = ServerApp()

_POLL_SECONDS = 1.0
_REDIAL_SECONDS = 10.0  # a living courier redials faster; after this it counts as dead and is invited again
_ARRIVAL_SECONDS = 60.0  # a courier's process may take this long to start on a busy machine


@app.main()
def main(grid: Grid, context: Context) -> None:
    folder = Path(str(context.run_config["run-folder"]))
    journal = Journal(folder / "journal.jsonl")
    try:
        _run(grid, str(context.run_id), folder, journal)
    except SilosynthError as error:
        journal.write("failed", error=type(error).__name__, message=str(error), exit_code=error.exit_code)
        raise
    except BaseException as error:
        journal.write("failed", error=type(error).__name__, message=str(error), exit_code=1)
        raise


def _run(grid: Grid, run_id: str, folder: Path, journal: Journal) -> None:
    config = load(RunConfig, folder / "run.toml")
    server = load(ServerConfig, folder / "server.toml")
    exchange = Exchange(run_id, server.certificates(config.federation.silos), server.exchange, journal)
    inviter = _Inviter(grid, run_id, exchange, config.federation.silos, journal)
    inviter.start()
    farewell = "the run failed"
    try:
        _gather(exchange, config, journal)
        conduct(config, folder, exchange, journal)
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
    while len(exchange.present()) < len(federation.silos) and time.monotonic() < ends:
        time.sleep(0.1)


class _Inviter(threading.Thread):
    """Sends each silo one invitation, and another when its courier has died."""

    def __init__(self, grid: Grid, run_id: str, exchange: Exchange, silos: tuple[str, ...], journal: Journal) -> None:
        super().__init__(daemon=True)
        self._grid, self._run_id, self._exchange, self._journal = grid, run_id, exchange, journal
        self._due = dict.fromkeys(silos, 0.0)  # when to invite next, on the monotonic clock
        self._silo_of_message: dict[str, str] = {}
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
        """A reply means that the courier has left; unless the run is over, it is invited again."""
        for reply in self._grid.pull_messages(list(self._silo_of_message)):
            silo = self._silo_of_message.pop(reply.metadata.reply_to_message_id)
            self._due[silo] = 0.0
            self._journal.write("courier_left", silo=silo, reason=_reason(reply))

    def _invite_absent(self) -> None:
        present, now = set(self._exchange.present()), time.monotonic()
        self._due.update(dict.fromkeys(present, now + _REDIAL_SECONDS))
        absent = [silo for silo, due in self._due.items() if now >= due and silo not in present]
        if not absent:
            return
        node_ids = {node.name: node.node_id for node in self._grid.get_nodes()}
        invited = [silo for silo in absent if silo in node_ids]
        ids = self._grid.push_messages([self._invitation(node_ids[silo]) for silo in invited])
        for silo, message_id in zip(invited, ids, strict=True):
            self._silo_of_message[message_id] = silo
            self._due[silo] = now + _ARRIVAL_SECONDS
            self._journal.write("invited", silo=silo)

    def _invitation(self, node_id: int) -> Message:
        record = ConfigRecord({"run-id": self._run_id, "exchange": self._exchange.address})
        return Message(RecordDict({"invitation": record}), dst_node_id=node_id, message_type="query.invite")


def _reason(reply: Message) -> str:
    """Our own words only: either the courier's sanitized outcome or Flower's error code."""
    if reply.has_error():
        return f"Flower error {reply.error.code}"
    outcome = reply.content.config_records["outcome"]
    return str(outcome.get("farewell", outcome.get("message", "unknown")))
