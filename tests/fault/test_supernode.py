"""A courier whose SuperLink answers with errors must end: one that stays and answers nobody is never started again."""

# ruff: noqa: N802 (gRPC names them)
from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    ActivateNodeResponse,
    PullMessagesRequest,
    PullMessagesResponse,
    RegisterNodeFleetRequest,
    RegisterNodeFleetResponse,
)
from flwr.proto.fleet_pb2_grpc import FleetServicer, add_FleetServicer_to_server
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest, SendNodeHeartbeatResponse

from silosynth.deploy.addresses import LOOPBACK, free_port
from silosynth.deploy.flower import QUIET, supernode_command
from silosynth.deploy.processes import Processes


class FailingSuperLink(FleetServicer):
    """Admits everybody, and answers whoever asks for messages with an error."""

    def __init__(self, error: grpc.StatusCode) -> None:
        self._error = error

    def RegisterNode(
        self, request: RegisterNodeFleetRequest, context: grpc.ServicerContext
    ) -> RegisterNodeFleetResponse:
        return RegisterNodeFleetResponse(node_id=1)

    def ActivateNode(self, request: ActivateNodeRequest, context: grpc.ServicerContext) -> ActivateNodeResponse:
        return ActivateNodeResponse(node_id=1)

    def SendNodeHeartbeat(
        self, request: SendNodeHeartbeatRequest, context: grpc.ServicerContext
    ) -> SendNodeHeartbeatResponse:
        return SendNodeHeartbeatResponse(success=True)

    def PullMessages(self, request: PullMessagesRequest, context: grpc.ServicerContext) -> PullMessagesResponse:
        context.abort(self._error, "database is locked")


@pytest.mark.parametrize("error", [grpc.StatusCode.UNKNOWN, grpc.StatusCode.UNAUTHENTICATED])
def test_a_courier_that_can_ask_no_more_ends(tmp_path: Path, error: grpc.StatusCode) -> None:
    with ThreadPoolExecutor(4) as workers, Processes(tmp_path) as processes:
        link = grpc.server(workers)
        add_FleetServicer_to_server(FailingSuperLink(error), link)
        port = link.add_insecure_port(f"{LOOPBACK}:0")
        link.start()
        command = supernode_command(f"{LOOPBACK}:{port}", tmp_path, tmp_path, free_port(), tmp_path)
        without_tls = [*command[:5], "--insecure", *command[command.index("--host") :]]
        courier = processes.start("courier", without_tls, **QUIET, FLWR_HOME=str(tmp_path))
        code = courier.process.wait(60)
        link.stop(None).wait()
    assert code == (0 if error is grpc.StatusCode.UNAUTHENTICATED else 1), courier.last_words()
