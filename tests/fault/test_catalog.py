"""The catalog: handed out whole and genuine through cuts and tampering, and to nobody who may not have it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import grpc
import numpy as np
import pytest
from support.cutting_proxy import cutting_proxy
from support.fake_federation import Identities
from support.published import Server, product, run_config

from silosynth.client.releases import catalog as catalog_module
from silosynth.client.releases.access import Access
from silosynth.client.releases.catalog import Catalog
from silosynth.client.releases.pulling import keep_pulling, pull_new
from silosynth.client.releases.shelf import Shelf
from silosynth.common import channels
from silosynth.common.errors import (
    CatalogUnavailable,
    ConfigError,
    PeerRejected,
    ReleaseWithdrawn,
    VerificationFailed,
)
from silosynth.common.publication.names import ReleaseName
from silosynth.common.publication.verification import verify_release
from silosynth.protos.v1 import catalog_pb2

FIRST = ReleaseName("night-shift", 1)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> tuple[Server, Path]:
    """One release of some megabytes, so that there is something to cut."""
    server = Server(tmp_path_factory.mktemp("server"))
    noise = np.random.default_rng(0).standard_normal((1 << 20,))
    path, _ = server.publish(product(models={"noise": {"noise": noise}}))
    return server, path


@pytest.fixture
def token(published: tuple[Server, Path], request: pytest.FixtureRequest) -> Iterator[str]:
    server = published[0]
    yield server.tokens.grant("consumer")
    server.tokens.revoke("consumer")


def contents(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_consumer_with_a_token_gets_every_byte(published: tuple[Server, Path], token: str, tmp_path: Path) -> None:
    server, original = published
    with server.catalog() as (_, address):
        catalog = Catalog(server.consumer(address, token))
        assert [entry.name for entry in catalog.releases()] == ["night-shift"]
        assert "night-shift/1" in catalog.describe(FIRST).readme
        pulled = catalog.pull(FIRST, Shelf(tmp_path))
    assert contents(pulled) == contents(original)
    assert [path.name for path in pulled.parent.iterdir()] == ["1"]


def test_a_registered_silo_needs_no_token(published: tuple[Server, Path], tmp_path: Path) -> None:
    server, original = published
    server.silos = ["ward"]
    with server.catalog() as (address, _):
        pulled = Catalog(server.silo("ward", address)).pull(FIRST, Shelf(tmp_path))
    assert contents(pulled) == contents(original)


def test_what_arrived_before_a_cut_is_kept(published: tuple[Server, Path], token: str, tmp_path: Path) -> None:
    server, original = published
    size = sum(map(len, contents(original).values()))
    with server.catalog() as (_, address), cutting_proxy(address, [1 << 40, size // 3, size // 3]) as proxy:
        seen: list[int] = []
        access = server.consumer(proxy.address, token)  # the first connection only describes
        pulled = Catalog(access).pull(FIRST, Shelf(tmp_path), lambda done, total: seen.append(done))
        assert proxy.cut == 2
    assert seen == sorted(set(seen))
    assert contents(pulled) == contents(original)


def test_a_pull_that_was_killed_is_taken_up(published: tuple[Server, Path], token: str, tmp_path: Path) -> None:
    server, original = published

    def interrupt(done: int, total: int) -> None:
        if done > total // 2:
            raise KeyboardInterrupt

    with server.catalog() as (_, address):
        catalog, shelf = Catalog(server.consumer(address, token)), Shelf(tmp_path)
        with pytest.raises(KeyboardInterrupt):
            catalog.pull(FIRST, shelf, interrupt)
        assert not shelf.holds(FIRST)
        offsets: list[int] = []
        pulled = catalog.pull(FIRST, shelf, lambda done, total: offsets.append(done))
    size = sum(map(len, contents(original).values()))
    assert offsets[0] > size // 2
    assert contents(pulled) == contents(original)


def test_leftovers_that_were_damaged_are_fetched_anew(
    published: tuple[Server, Path], token: str, tmp_path: Path
) -> None:
    server, original = published
    shelf = Shelf(tmp_path)
    partial = shelf.partial(FIRST)
    partial.mkdir(parents=True)
    (partial / "manifest.json").write_bytes((original / "manifest.json").read_bytes())
    (partial / "README.md").write_bytes(b"x" * (original / "README.md").stat().st_size)
    (partial / "contact-sheet.png").write_bytes(b"x" * (1 << 20))
    with server.catalog() as (_, address):
        catalog = Catalog(server.consumer(address, token))
        with pytest.raises(VerificationFailed, match=r"README\.md did not arrive"):
            catalog.pull(FIRST, shelf)
        assert contents(catalog.pull(FIRST, shelf)) == contents(original)


class TestStrangers:
    """Get nothing: no name, no byte."""

    def test_without_a_token(self, published: tuple[Server, Path], tmp_path: Path) -> None:
        with published[0].catalog() as (_, address):
            self.refused(published[0].consumer(address, None), tmp_path)

    @pytest.mark.parametrize("shown", ["", "x" * 43, "consumer"])
    def test_with_another_token(self, published: tuple[Server, Path], token: str, tmp_path: Path, shown: str) -> None:
        with published[0].catalog() as (_, address):
            self.refused(published[0].consumer(address, shown), tmp_path)

    def test_with_a_revoked_token(self, published: tuple[Server, Path], tmp_path: Path) -> None:
        server = published[0]
        revoked = server.tokens.grant("former")
        with server.catalog() as (_, address):
            Catalog(server.consumer(address, revoked)).releases()
            server.tokens.revoke("former")
            self.refused(server.consumer(address, revoked), tmp_path)

    def test_who_trust_another_ca(self, published: tuple[Server, Path], token: str, tmp_path: Path) -> None:
        """A consumer must not send its token to whoever answers."""
        server = published[0]
        (tmp_path / "other").mkdir()
        other = Identities(tmp_path / "other").ca.read_bytes()
        with server.catalog() as (_, address):
            access = replace(server.consumer(address, token), credentials=grpc.ssl_channel_credentials(other))
            self.refused(access, tmp_path)

    def test_with_a_token_at_the_silos_door(self, published: tuple[Server, Path], token: str, tmp_path: Path) -> None:
        server = published[0]
        with server.catalog() as (address, _), pytest.raises((PeerRejected, CatalogUnavailable)):
            Catalog(server.consumer(address, token), patience=0).releases()

    def test_with_a_certificate_of_another_ca(self, published: tuple[Server, Path], tmp_path: Path) -> None:
        server = published[0]
        server.silos = ["ward"]
        (tmp_path / "other").mkdir()
        certificate = Identities(tmp_path / "other").certificate("ward")
        key = certificate.with_suffix(".key")
        credentials = channels.client_credentials(server.identities.ca, certificate, key)
        with server.catalog() as (address, _), pytest.raises((PeerRejected, CatalogUnavailable)):
            Catalog(Access(address, server.publisher_key, credentials), patience=0).releases()

    def test_a_silo_that_was_removed(self, published: tuple[Server, Path], tmp_path: Path) -> None:
        server = published[0]
        server.silos = ["ward"]
        with server.catalog() as (address, _):
            Catalog(server.silo("ward", address)).releases()
            server.silos = []
            self.refused(server.silo("ward", address), tmp_path)

    @staticmethod
    def refused(access: Access, folder: Path) -> None:
        catalog, shelf = Catalog(access, patience=0), Shelf(folder / "shelf")
        asks: list[Callable[[], object]] = [
            catalog.releases,
            lambda: catalog.describe(FIRST),
            lambda: catalog.pull(FIRST, shelf),
        ]
        for ask in asks:
            with pytest.raises(PeerRejected):
                ask()
        assert not shelf.releases()
        assert not shelf.folder.exists()


def test_a_catalog_that_is_down_is_told_from_one_that_refuses(
    published: tuple[Server, Path], token: str, tmp_path: Path
) -> None:
    server = published[0]
    with server.catalog() as (_, address):
        access = server.consumer(address, token)
    with pytest.raises(CatalogUnavailable, match="is its server running"):
        Catalog(access).releases()


def test_another_publishers_release_is_refused(published: tuple[Server, Path], token: str, tmp_path: Path) -> None:
    server = published[0]
    with server.catalog() as (_, address):
        access = replace(server.consumer(address, token), publisher="ab" * 32)
        with pytest.raises(VerificationFailed, match="not by the publisher"):
            Catalog(access).pull(FIRST, Shelf(tmp_path))


def test_a_store_that_was_tampered_with_is_found_out(tmp_path: Path) -> None:
    server = Server(tmp_path / "server")
    server.publish()
    arrays = verify_release(tmp_path / "server/release-1").files["data/train.npz"].sha256
    stored = server.folder / "store/objects" / arrays[:2] / arrays
    changed = bytearray(stored.read_bytes())
    changed[len(changed) // 2] ^= 1
    stored.write_bytes(changed)
    with server.catalog() as (_, address):
        catalog = Catalog(server.consumer(address, server.tokens.grant("c")))
        with pytest.raises(VerificationFailed, match=r"data/train\.npz did not arrive"):
            catalog.pull(FIRST, Shelf(tmp_path / "shelf"))


def test_a_full_disk_is_told_before_anything_is_fetched(
    published: tuple[Server, Path], token: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog_module, "_SPARE_BYTES", 1 << 60)
    with published[0].catalog() as (_, address), pytest.raises(ConfigError, match="make room"):
        Catalog(published[0].consumer(address, token)).pull(FIRST, Shelf(tmp_path))


def test_two_pulls_do_not_spoil_each_other(published: tuple[Server, Path], token: str, tmp_path: Path) -> None:
    server = published[0]
    with server.catalog() as (_, address):
        catalog, shelf = Catalog(server.consumer(address, token)), Shelf(tmp_path)

        def second(done: int, total: int) -> None:
            with pytest.raises(ConfigError, match="another process"):
                catalog.pull(FIRST, shelf)

        catalog.pull(FIRST, shelf, second)
    verify_release(shelf.find(FIRST))


class TestASilosPuller:
    def test_gets_what_is_new_and_notes_what_is_withdrawn(self, tmp_path: Path) -> None:
        server, shelf = Server(tmp_path / "server"), Shelf(tmp_path / "shelf")
        server.silos = ["ward"]
        server.publish()
        with server.catalog() as (address, _):
            catalog = Catalog(server.silo("ward", address))
            assert pull_new(catalog, shelf) == [FIRST]
            assert pull_new(catalog, shelf) == []
            server.publish(config=run_config(seed=1))
            server.store.withdraw(FIRST, "the wrong records were used")
            assert pull_new(catalog, shelf) == [ReleaseName("night-shift", 2)]
            with pytest.raises(ReleaseWithdrawn, match="wrong records"):
                shelf.find(FIRST)
            shelf.find(ReleaseName("night-shift", 2))

    def test_is_not_handed_what_was_withdrawn(self, tmp_path: Path) -> None:
        server, shelf = Server(tmp_path / "server"), Shelf(tmp_path / "shelf")
        server.silos = ["ward"]
        server.publish()
        server.store.withdraw(FIRST, "a mistake")
        with server.catalog() as (address, _):
            catalog = Catalog(server.silo("ward", address))
            assert pull_new(catalog, shelf) == []
            with pytest.raises(ReleaseWithdrawn, match="a mistake"):
                catalog.pull(FIRST, shelf)
            with pytest.raises(ConfigError, match="never published"):
                catalog.pull(ReleaseName("night-shift", 9), shelf)

    def test_comes_at_once_when_the_courier_was_told(self, tmp_path: Path) -> None:
        """It would sleep for a minute otherwise."""
        news, asked = tmp_path / "announced", []

        class Enough(Exception):
            pass

        class Told(Catalog):
            def __init__(self) -> None:
                pass

            def releases(self) -> list[catalog_pb2.CatalogEntry]:
                asked.append(time.monotonic())
                news.touch()
                if len(asked) == 3:
                    raise Enough
                return []

        with pytest.raises(Enough):
            keep_pulling(Told(), Shelf(tmp_path), news)
