"""`silosynth release`: what a consumer types, and what one changed byte does to `verify`."""

from __future__ import annotations

import json
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.published import Server, product, run_config

import silosynth
from silosynth.client.releases.shelf import Shelf
from silosynth.common.publication.names import ReleaseName
from silosynth.deploy import cli
from silosynth.deploy.consumers import write_access
from silosynth.deploy.server_folder import ServerFolder, write_toml
from silosynth.server.config import CatalogSettings

FLIPS = 500


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    """`main` is meant to have a process of its own."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(tmp_path / "server")


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> int:
    """As typed; returns the exit code."""
    monkeypatch.setattr(sys, "argv", ["silosynth", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


def test_one_flipped_byte_anywhere_fails_verification_and_names_the_file(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Half of the bytes are drawn from all bytes, half from all files, so that small files are hit too."""
    soft = np.full((12, 3), 1 / 3, dtype=np.float32)
    path, _ = server.publish(product(soft_labels=soft, models={"means": {"means": np.zeros((3, 64))}}))
    assert run(monkeypatch, "release", "verify", path) == 0
    random = np.random.default_rng(0)
    files = sorted(file for file in path.rglob("*") if file.is_file())
    sizes = np.array([file.stat().st_size for file in files])
    hit = set()
    for number in range(FLIPS):
        file = files[random.choice(len(files), p=sizes / sizes.sum() if number % 2 else None)]
        name, whole = file.relative_to(path).as_posix(), file.read_bytes()
        changed = bytearray(whole)
        changed[random.integers(len(whole))] ^= 1 << random.integers(8)
        file.write_bytes(changed)
        capsys.readouterr()
        assert run(monkeypatch, "release", "verify", path) == 30, name
        assert re.search(rf"(?<![\w./]){re.escape(name)}(?![\w.])", capsys.readouterr().err), name
        file.write_bytes(whole)
        hit.add(name)
    assert hit == {file.relative_to(path).as_posix() for file in files}
    assert run(monkeypatch, "release", "verify", path) == 0


class Consumer:
    """Somebody with an access file, a shelf and a terminal."""

    def __init__(self, server: Server, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
        self.shelf, self.access = folder / "shelf", folder / "access.toml"
        self._run, self._capsys = (lambda *arguments: run(monkeypatch, *arguments)), capsys
        monkeypatch.setenv("SILOSYNTH_RELEASES", str(self.shelf))
        self._server = server

    def is_granted(self, address: str) -> None:
        port = int(address.rpartition(":")[2])
        config = self._server.config().model_copy(update={"catalog": CatalogSettings(consumer_port=port)})
        write_toml(self._server.folder / "server.toml", config)
        write_access(ServerFolder(self._server.folder), "alice", self.access)

    def types(self, *arguments: str | Path, code: int = 0) -> str:
        """What is said on stderr."""
        self._capsys.readouterr()
        assert self._run("release", *arguments) == code
        return str(self._capsys.readouterr().err)

    def reads(self, *arguments: str | Path) -> Any:
        self._capsys.readouterr()
        assert self._run("release", *arguments, "--format", "json") == 0
        return json.loads(self._capsys.readouterr().out)


@pytest.fixture
def consumer(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Consumer:
    return Consumer(server, tmp_path, monkeypatch, capsys)


def test_a_consumers_day(server: Server, consumer: Consumer, tmp_path: Path) -> None:
    server.publish()
    server.publish(config=run_config(seed=1))
    with server.catalog() as (_, address):
        consumer.is_granted(address)
        offered = consumer.reads("list", "--access", consumer.access)
        assert [(entry["release"], entry["parent"]) for entry in offered] == [
            ("night-shift/1", None),
            ("night-shift/2", 1),
        ]
        assert "night-shift/2" in consumer.types("list", "--access", consumer.access)
        assert "night-shift/2" in consumer.reads("show", "night-shift/2", "--access", consumer.access)["readme"]
        assert consumer.reads("list") == []
        assert "silosynth release pull" in consumer.types("show", "night-shift/2", code=3)
        pulled = consumer.reads("pull", "night-shift/2", "--access", consumer.access)
        assert "pulled and verified" in consumer.types("pull", "night-shift/2", "--access", consumer.access)
    assert pulled["folder"] == str(consumer.shelf / "night-shift/2")
    assert [entry["release"] for entry in consumer.reads("list")] == ["night-shift/2"]
    assert "What it cost" in consumer.types("show", "night-shift/2")
    assert consumer.reads("verify", "night-shift/2")["publisher"] == server.publisher_key
    assert "as signed by" in consumer.types("verify", consumer.shelf / "night-shift/2")
    assert "not by the publisher" in consumer.types("verify", "night-shift/2", "--publisher", "ab" * 32, code=30)
    assert "12 records" in consumer.types("export", "night-shift/2", tmp_path / "data.parquet")
    assert "not overwritten" in consumer.types("export", "night-shift/2", tmp_path / "data.parquet", code=3)


def test_what_was_withdrawn_is_told_and_no_longer_handed_out(server: Server, consumer: Consumer) -> None:
    server.publish()
    with server.catalog() as (_, address):
        consumer.is_granted(address)
        arguments = ("night-shift/1", "--reason", "wrong records", "--server", server.folder)
        assert "is withdrawn" in consumer.types("withdraw", *arguments)
        assert "withdrawn already: wrong records" in consumer.types("withdraw", *arguments, code=3)
        assert consumer.reads("list", "--access", consumer.access)[0]["withdrawn"] == "wrong records"
        assert "wrong records" in consumer.types("pull", "night-shift/1", "--access", consumer.access, code=31)
    never = ("night-shift/7", "--reason", "x", "--server", server.folder)
    assert "never published" in consumer.types("withdraw", *never, code=3)


def test_a_name_without_a_version_is_a_usage_everyone_understands(consumer: Consumer) -> None:
    assert "such as demo/3" in consumer.types("show", "demo", code=3)


class TestLoading:
    def test_by_name_and_by_path(self, server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        soft = np.full((12, 3), 1 / 3, dtype=np.float32)
        path, _ = server.publish(product(soft_labels=soft))
        place = Shelf(tmp_path / "shelf").place(ReleaseName("night-shift", 1))
        place.parent.mkdir(parents=True)
        path.rename(place)
        monkeypatch.setenv("SILOSYNTH_RELEASES", str(tmp_path / "shelf"))
        for dataset in (silosynth.load("night-shift/1"), silosynth.load(place, publisher=server.publisher_key)):
            image, label = dataset[0]
            assert (tuple(image.shape), label, len(dataset)) == ((1, 8, 8), 0, 12)
            assert 0 <= float(image.min()) <= float(image.max()) <= 1
            assert dataset.soft_labels is not None

    def test_what_was_changed_is_not_loaded(self, server: Server) -> None:
        path, _ = server.publish()
        (path / "README.md").write_text("better")
        with pytest.raises(silosynth.common.errors.VerificationFailed, match=r"README\.md was changed"):
            silosynth.load(path)
