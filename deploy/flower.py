"""Flower's programs as we use them: SuperLink, SuperExec, SuperNodes, and the `flwr` command."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from silosynth.common.errors import RunFailed

BUNDLE = Path(__file__).parent / "bundle"
_CONNECTION, _PATIENCE_SECONDS = "silosynth", 120
_UNSIGNED = (1 << 64) - 1  # the database keeps node ids as signed integers
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
}


@dataclass(frozen=True)
class SuperLink:
    """Where a SuperLink listens: `fleet` for SuperNodes (gRPC), `control` for us (HTTP, loopback).

    Isolation "process" and a database: a run's coordinator is no child of the SuperLink, so a SuperLink that dies and
    is started again goes on with it. The secret keeps other programs here from taking the coordinator's place.
    """

    fleet: str
    control: str
    ca: Path
    secret: Path

    def command(self, certificate: Path, key: Path, database: Path) -> list[str]:
        host, port = self.control.rsplit(":", 1)
        return [
            *("flower-superlink", "--disable-runtime-dependency-installation", "--enable-supernode-auth"),
            *("--fleet-api-address", self.fleet, "--host", host, "--port", port),
            *("--ssl-ca-certfile", str(self.ca), "--ssl-certfile", str(certificate), "--ssl-keyfile", str(key)),
            *("--isolation", "process", "--database", str(database), "--superexec-auth-secret-file", str(self.secret)),
        ]

    def executor_command(self) -> list[str]:
        """The SuperExec, which starts the coordinator of a run."""
        return [
            *("flower-superexec", "--runtime-api-address", self.control, "--root-certificates", str(self.ca)),
            *("--superexec-auth-secret-file", str(self.secret)),
        ]


def supernode_command(fleet: str, ca: Path, node_key: Path, runtime_port: int, courier: Path) -> list[str]:
    return [
        *(sys.executable, "-m", "silosynth.deploy.supernode", "--superlink", fleet, "--root-certificates", str(ca)),
        *("--auth-supernode-private-key", str(node_key), "--host", "127.0.0.1", "--port", str(runtime_port)),
        *("--node-config", f'courier="{courier}"'),
    ]


@dataclass(frozen=True)
class Flwr:
    """The `flwr` command, speaking to one SuperLink from a home folder of its own."""

    home: Path
    environment: Mapping[str, str]

    @classmethod
    def configured(cls, home: Path, link: SuperLink, environment: Mapping[str, str]) -> Flwr:
        home.mkdir(parents=True, exist_ok=True)
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "{_CONNECTION}"\n\n'
            f'[superlink.{_CONNECTION}]\naddress = "{link.control}"\nroot-certificates = "{link.ca}"\n'
        )
        return cls(home, {**environment, **QUIET, "FLWR_HOME": str(home)})

    def register(self, names_and_keys: Mapping[str, Path]) -> None:
        """Tell the SuperLink which nodes may join, by name and public key."""
        starting = [
            (name, self._start("supernode", "register", str(key), _CONNECTION, "--name", name))
            for name, key in names_and_keys.items()
        ]
        for name, process in starting:
            _finish(process, f"registering {name}")

    def unregister(self, node_id: int) -> None:
        _finish(self._start("supernode", "unregister", str(node_id), _CONNECTION), f"unregistering node {node_id}")

    def run(self, bundle: Path, run_folder: Path) -> str:
        """Submit a bundle; returns Flower's run id."""
        config = f'run-folder="{run_folder}"'
        process = self._start("run", str(bundle), _CONNECTION, "--run-config", config)
        answer = _finish(process, "submitting the run")
        return str(answer["run-id"])

    def run_status(self, run_id: str) -> str:
        """Such as "running" or "finished:completed"."""
        answer = _finish(self._start("list", _CONNECTION, "--run-id", run_id), f"asking for run {run_id}")
        runs = answer["runs"]
        return str(runs[0]["status"]) if isinstance(runs, list) and runs else "unknown"

    def _start(self, *arguments: str) -> subprocess.Popen[str]:
        program = Path(sys.executable).parent / "flwr"
        return subprocess.Popen(
            [str(program), *arguments, "--format", "json"],
            env=dict(self.environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def registered_nodes(database: Path) -> dict[bytes, int]:
    """Public key (PEM) and id of every node a SuperLink admits; `flwr` tells no keys, so its database is asked."""
    with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
        rows = connection.execute("SELECT public_key, node_id FROM node WHERE status != 'unregistered'").fetchall()
    return {bytes(key): node_id & _UNSIGNED for key, node_id in rows}


def _finish(process: subprocess.Popen[str], what: str) -> dict[str, object]:
    try:
        output, errors = process.communicate(timeout=_PATIENCE_SECONDS)
    except subprocess.TimeoutExpired as error:
        process.kill()
        process.communicate()
        raise RunFailed(f"{what} with Flower: no answer within {_PATIENCE_SECONDS} s") from error
    try:
        answer = json.loads(output)
    except ValueError:
        answer = {}
    if process.returncode != 0 or not answer.get("success", True) or not answer:
        raise RunFailed(f"{what} with Flower failed: {output.strip() or errors.strip()}")
    return dict(answer)
