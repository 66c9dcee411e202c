"""The guard on a real socket, in this process and as a process of its own."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tomli_w
from support.guards import (
    COURIER,
    SCHEMA,
    CountedMechanism,
    counts_bytes,
    counts_query,
    open_ledger,
    silo_tables,
    toy_guard,
    toy_records,
)

from silosynth.client.config import CourierConfig, load_courier, load_silo
from silosynth.client.guard.mechanism import Bench
from silosynth.client.guard.service import GuardServer
from silosynth.common.config import parse
from silosynth.common.datasets import save_npz
from silosynth.common.errors import ConfigError
from silosynth.common.queries import Mixtures, encode
from silosynth.common.releases import open_release
from silosynth.protos.v1 import guard_pb2
from silosynth.protos.v1.guard_pb2_grpc import GuardStub


@pytest.fixture
def folder() -> Iterator[Path]:
    """The path of a Unix socket must be short; pytest's own folders are not."""
    with tempfile.TemporaryDirectory(prefix="guard-") as name:
        yield Path(name)


@contextmanager
def served(folder: Path, address: str | None = None, **settings: Any) -> Iterator[tuple[GuardServer, GuardStub]]:
    with ExitStack() as cleanup:
        ledger = cleanup.enter_context(closing(open_ledger(folder)))
        server = GuardServer(toy_guard(ledger, **settings), address or f"unix:{folder}/guard.sock")
        cleanup.callback(server.stop)
        yield server, GuardStub(cleanup.enter_context(grpc.insecure_channel(server.address)))


def ask(stub: GuardStub, query: bytes) -> list[guard_pb2.AnswerPart]:
    return list(stub.Answer(guard_pb2.Question(query=query), timeout=30))


def release(parts: list[guard_pb2.AnswerPart]) -> tuple[guard_pb2.ReleaseHeader, bytes]:
    """Header and content of an answer, which must come in this order: progress, header, chunks."""
    kinds = [part.WhichOneof("part") for part in parts]
    start = kinds.index("header")
    assert set(kinds[:start]) <= {"progress"}
    assert set(kinds[start + 1 :]) == {"chunk"}
    assert all(len(part.chunk) <= 1 << 20 for part in parts)
    return parts[start].header, b"".join(part.chunk for part in parts[start + 1 :])


def test_answer_and_replay_over_a_socket(folder: Path) -> None:
    with served(folder) as (_, stub):
        header, sealed = release(ask(stub, counts_bytes(5.0)))
        again, same = release(ask(stub, counts_bytes(5.0)))
        status = stub.Budget(guard_pb2.BudgetRequest(), timeout=10)
    open_release(counts_query(5.0), sealed)
    assert sealed == same
    assert header.size == len(sealed)
    assert (header.replayed, again.replayed) == (False, True)
    assert header.budget == again.budget == status
    assert (status.releases, status.epsilon_total) == (1, 1.0)


def test_large_release_comes_in_chunks(folder: Path) -> None:
    query = Mixtures(
        schema=SCHEMA,
        noise_multiplier=1e4,
        mixtures=50_000,
        sampling_probability=1e-3,
        center=0.0,
        clip=1.0,
        count_weight=1.0,
    )
    with served(folder) as (_, stub):
        parts = ask(stub, encode(query))
    _, sealed = release(parts)
    assert len([part for part in parts if part.WhichOneof("part") == "chunk"]) > 2
    open_release(query, sealed)


def test_refusals_travel_as_parts(folder: Path) -> None:
    with served(folder) as (_, stub):
        refusals = [ask(stub, query)[-1].refusal for query in (b"\xff", counts_bytes(0.5))]
        status = stub.Budget(guard_pb2.BudgetRequest(), timeout=10)
    assert [refusal.error for refusal in refusals] == ["QueryError", "BudgetExhausted"]
    assert "remain" in refusals[1].message
    assert status.releases == 0


def test_refused_ledger_becomes_a_status(folder: Path) -> None:
    with closing(open_ledger(folder)) as ledger:
        server = GuardServer(toy_guard(ledger), f"unix:{folder}/guard.sock")
    with grpc.insecure_channel(server.address) as channel:
        with pytest.raises(grpc.RpcError) as refused:
            GuardStub(channel).Budget(guard_pb2.BudgetRequest(), timeout=10)
        assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert refused.value.details().startswith("LedgerError: ")
        assert ask(GuardStub(channel), counts_bytes(5.0))[-1].refusal.error == "LedgerError"
    server.stop()


def test_oversize_message_is_refused_before_parsing(folder: Path) -> None:
    with served(folder) as (_, stub):
        with pytest.raises(grpc.RpcError) as refused:
            ask(stub, bytes(3 << 20))
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert stub.Describe(guard_pb2.DescribeRequest(), timeout=10).silo == "toy"


def test_socket_is_for_owner_and_group(folder: Path) -> None:
    with served(folder):
        assert stat.S_IMODE((folder / "guard.sock").stat().st_mode) == 0o660


def test_loopback_port_is_chosen_and_told(folder: Path) -> None:
    with served(folder, "127.0.0.1:0") as (server, stub):
        assert not server.address.endswith(":0")
        assert stub.Describe(guard_pb2.DescribeRequest(), timeout=10).silo == "toy"


def test_a_port_in_use_is_a_config_error(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ConfigError, match="cannot listen"), served(folder, f"127.0.0.1:{taken.getsockname()[1]}"):
            pass


def test_second_guard_does_not_take_the_socket(folder: Path) -> None:
    with served(folder) as (server, stub), closing(open_ledger(folder)) as ledger:
        with pytest.raises(ConfigError, match="another guard"):
            GuardServer(toy_guard(ledger), server.address)
        assert stub.Describe(guard_pb2.DescribeRequest(), timeout=10).silo == "toy"


def test_a_socket_left_behind_is_taken_over(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as abandoned:
        abandoned.bind(str(folder / "guard.sock"))
    with served(folder) as (_, stub):
        release(ask(stub, counts_bytes(5.0)))


class HeldMechanism(CountedMechanism):
    """Computes only after `go_on` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = threading.Event()

    def __call__(self, *arguments: Any) -> Any:
        assert self.go_on.wait(60)
        return super().__call__(*arguments)


def test_an_answer_nobody_waits_for_is_finished_and_stored(folder: Path) -> None:
    held = HeldMechanism()
    with served(folder, mechanisms={"class_counts": held}) as (_, stub):
        call = stub.Answer(guard_pb2.Question(query=counts_bytes(5.0)), timeout=30)
        assert next(iter(call)).progress == guard_pb2.Progress(phase="computing", fraction=0.0)
        call.cancel()
        held.go_on.set()
        header, _ = release(ask(stub, counts_bytes(5.0)))
    assert header.replayed
    assert held.computed == {counts_bytes(5.0): 1}


def test_more_answers_than_there_is_room_for_are_refused(folder: Path) -> None:
    held = HeldMechanism()
    with served(folder, mechanisms={"class_counts": held}, epsilon=8.0) as (_, stub), ThreadPoolExecutor(9) as pool:
        asked = [pool.submit(ask, stub, counts_bytes(8.0 + number)) for number in range(9)]
        refused = next(as_completed(asked))
        held.go_on.set()
        assert refused.result()[-1].refusal.error == "SiloUnavailable"
        for answer in set(asked) - {refused}:
            release(answer.result())


def test_stopping_the_server_ends_a_computation(folder: Path) -> None:
    begun = threading.Event()

    def endless(query: Any, records: Any, bench: Bench) -> Any:
        begun.set()
        while True:
            bench.report(0.5)

    with served(folder, mechanisms={"class_counts": endless}) as (server, stub), ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask, stub, counts_bytes(5.0))
        assert begun.wait(30)
        server.stop()
        assert asked.result()[-1].refusal.error == "SiloUnavailable"
    with closing(open_ledger(folder)) as ledger:
        assert ledger.spent("default").releases == 0


@pytest.mark.parametrize("address", ["0.0.0.0:5000", "192.168.1.5:80", "guard.example:80", "unix:", "127.0.0.1", ""])
def test_only_local_addresses(address: str) -> None:
    with pytest.raises(ConfigError, match='guard: Value error, must be "unix:PATH"'):
        parse(CourierConfig, COURIER | {"guard": address}, "courier.toml")


def write_silo(folder: Path, **tables: Any) -> Path:
    save_npz(toy_records(), folder / "records.npz")
    path = folder / "silo.toml"
    path.write_text(tomli_w.dumps(silo_tables() | tables))
    return path


def test_relative_paths_are_taken_from_the_files_folder(folder: Path) -> None:
    guard = load_silo(write_silo(folder)).guard
    assert (guard.address, guard.ledger, guard.key) == (
        f"unix:{folder}/guard.sock",
        folder / "ledger.db",
        folder / "receipts.key",
    )
    (folder / "courier.toml").write_text(tomli_w.dumps(COURIER))
    courier = load_courier(folder / "courier.toml")
    assert (courier.guard_target, courier.ca) == (f"unix:{folder}/a", folder / "ca")


def test_long_socket_path_is_a_config_error(folder: Path) -> None:
    guard = silo_tables()["guard"] | {"address": "unix:" + "x" * 100}
    with pytest.raises(ConfigError, match="too long for a Unix socket"):
        load_silo(write_silo(folder, guard=guard))


def command(config: Path) -> list[str]:
    return [sys.executable, "-m", "silosynth.client.guard_process", "--config", str(config)]


def test_process_serves_until_terminated(folder: Path) -> None:
    with subprocess.Popen(command(write_silo(folder)), stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == f"guard ready unix:{folder}/guard.sock\n"
            with grpc.insecure_channel(f"unix:{folder}/guard.sock") as channel:
                _, sealed = release(ask(GuardStub(channel), counts_bytes(5.0)))
            open_release(counts_query(5.0), sealed)
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=30) == 0
        finally:
            process.kill()
    with closing(open_ledger(folder)) as ledger:
        assert ledger.spent("default").releases == 1
    left = sorted(path.name for path in folder.iterdir() if path.name.startswith("ledger"))
    assert left == ["ledger.db", "ledger.db.decisions", "ledger.db.head"]


def refused_start(config: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(config), capture_output=True, text=True, timeout=60, env=os.environ)


def test_process_refuses_bad_records_without_quoting_them(folder: Path) -> None:
    config = write_silo(folder)
    features = np.array([[0.123456, np.nan, 0.5, 0.5]], dtype=np.float32)
    np.savez(folder / "records.npz", features=features, labels=np.array([1]))
    done = refused_start(config)
    assert done.returncode == 3
    assert "NaN" in done.stderr
    assert "0.12345" not in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_process_names_unknown_keys(folder: Path) -> None:
    done = refused_start(write_silo(folder, budget={"epsilon": 1.0, "delta": 1e-5, "epsilom": 2.0}))
    assert done.returncode == 3
    assert "budget.epsilom: unknown key" in done.stderr


def test_process_refuses_a_damaged_ledger(folder: Path) -> None:
    config = write_silo(folder)
    open_ledger(folder).close()
    (folder / "ledger.db").write_bytes(b"")
    done = refused_start(config)
    assert done.returncode == 12
    assert "ledger.db" in done.stderr


def test_witness_over_a_socket(folder: Path) -> None:
    with served(folder) as (_, stub):
        before = stub.Describe(guard_pb2.DescribeRequest(), timeout=10).head
        header, _ = release(ask(stub, counts_bytes(5.0)))
        assert stub.Witness(before, timeout=10) == header.head
        with pytest.raises(grpc.RpcError) as refused:
            stub.Witness(guard_pb2.Head(silo="toy", sequence=9), timeout=10)
        assert refused.value.details().startswith("VerificationFailed: ")
        release(ask(stub, counts_bytes(5.0)))


def test_process_of_an_older_copy_ends_when_the_server_knows_better(folder: Path) -> None:
    config = write_silo(folder)
    with closing(open_ledger(folder)) as ledger:
        seen = ledger.identity.sign(replace(ledger.head(), sequence=3, hash=bytes(32)))
    with subprocess.Popen(command(config), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("guard ready")
            with grpc.insecure_channel(f"unix:{folder}/guard.sock") as channel, pytest.raises(grpc.RpcError) as refused:
                GuardStub(channel).Witness(seen.to_proto(), timeout=10)
            assert refused.value.details().startswith("LedgerRolledBack: ")
            _, stderr = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 13
    assert "the server has seen a newer ledger" in stderr
    assert "Restore the newest copy" in stderr


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_DUMPABLE is Linux's")
def test_process_cannot_be_inspected() -> None:
    code = "import ctypes; from silosynth.client import guard_process as g; g._forbid_inspection()"
    check = "; print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))"  # PR_GET_DUMPABLE
    done = subprocess.run([sys.executable, "-c", code + check], capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"


def test_guard_imports_stay_light() -> None:
    """The guard package knows no mechanisms and no heavy library; the courier's configuration needs even less."""
    code = "import sys, silosynth.client.guard.service; print(*sys.modules)"
    guard = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "flwr", "sklearn", "silosynth.client.mechanisms"} & set(guard)
    code = "import sys, silosynth.client.config; print(*sys.modules)"
    config = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "flwr", "sklearn", "scipy", "dp_accounting", "grpc"} & set(config)
