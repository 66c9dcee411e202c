"""What a provisioned site is given to run it: compose files, systemd units, the guide."""

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from silosynth.deploy.kits import FederationFolder, Kit, Place


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> FederationFolder:
    federation = FederationFolder.create(tmp_path_factory.mktemp("federation"), Place(("synth.example.org",), 9192))
    federation.add_silo("st-mary")
    return federation


@pytest.fixture
def kit(federation: FederationFolder) -> Kit:
    return federation.kit("st-mary")


def compose(folder: Path) -> dict[str, dict[str, object]]:
    services: dict[str, dict[str, object]] = yaml.safe_load((folder / "compose.yml").read_text())["services"]
    return services


def test_every_container_is_without_root_capabilities_and_a_writable_root(federation: FederationFolder) -> None:
    for folder in (federation.server, federation.kit("st-mary").folder):
        for service in compose(folder).values():
            assert str(service["user"]).startswith("${S")
            assert service["read_only"] is True
            assert service["cap_drop"] == ["ALL"]
            assert service["security_opt"] == ["no-new-privileges:true"]


def test_the_guard_has_no_network_and_the_courier_no_records(kit: Kit) -> None:
    services = compose(kit.folder)
    assert services["guard"]["network_mode"] == "none"
    mounts = {name: {str(volume).split(":/")[1] for volume in services[name]["volumes"]} for name in services}  # type: ignore[attr-defined]
    assert mounts["guard"] & mounts["courier"] == {"silo/socket"}
    assert mounts["courier"] == {"silo/socket", "silo/courier", "silo/releases"}


def test_what_containers_mount_is_in_the_kit(kit: Kit) -> None:
    for name in ("guard", "courier", "socket", "releases"):
        assert (kit.folder / name).is_dir()
    assert "unix:../socket/guard.sock" in kit.silo_toml.read_text()


def test_the_guide_and_the_ports_name_this_federation(federation: FederationFolder, kit: Kit) -> None:
    guide = (kit.folder / "README.md").read_text()
    assert "synth.example.org:9192" in guide
    assert "{" not in guide
    assert "FLEET_PORT=9192" in (federation.server / ".env").read_text()


def test_every_setting_a_compose_file_needs_stands_in_its_env_file(federation: FederationFolder, kit: Kit) -> None:
    for folder in (federation.server, kit.folder):
        settings = {line.partition("=")[0] for line in (folder / ".env").read_text().splitlines()}
        wanted = {part.split(":")[0] for part in (folder / "compose.yml").read_text().split("${")[1:]}
        assert wanted <= settings


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze here")
def test_systemd_understands_the_units(kit: Kit, tmp_path: Path) -> None:
    for unit in ("guard.service", "courier.service"):
        text = (kit.folder / unit).read_text().replace("/opt/silosynth/bin/silosynth", "/bin/true")
        (tmp_path / f"silosynth-{unit}").write_text(text)
    units = sorted(str(unit) for unit in tmp_path.iterdir())
    done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True)
    ours = [line for line in done.stderr.splitlines() if "silosynth" in line]
    assert ours == []
