"""The courier: Flower's client app. It is told of a run, and attends it; it holds no data and no budget."""

from __future__ import annotations

from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from silosynth.client.attendance import Invitation, attend
from silosynth.client.config import ANNOUNCED, load_courier
from silosynth.common.errors import SilosynthError

app = ClientApp()


@app.query("invite")
def invite(message: Message, context: Context) -> Message:
    """Only our own errors go back: the text of any other exception would reach the server verbatim."""
    try:
        toml = _toml(context)
        announce = (toml.parent / ANNOUNCED).touch  # the puller looks at it
        outcome = {"farewell": attend(load_courier(toml), _invitation(message), announce)}
    except SilosynthError as error:
        outcome = {"error": type(error).__name__, "message": str(error)}
    except Exception:
        outcome = {"error": SilosynthError.__name__, "message": "the courier failed: its operator finds why in its log"}
    return Message(RecordDict({"outcome": ConfigRecord(outcome)}), reply_to=message)


def _invitation(message: Message) -> Invitation:
    record = message.content.config_records["invitation"]
    return Invitation(run_id=str(record["run-id"]), exchange=str(record["exchange"]))


def _toml(context: Context) -> Path:
    """The silo names its courier.toml when it starts the SuperNode; the server cannot."""
    return Path(str(context.node_config["courier"]))
