"""The compose file of a simulated federation: the same services that real servers and sites are given, N times."""

from pathlib import Path

import pytest
import yaml

from silosynth.common.errors import ConfigError
from silosynth.deploy.image.requirements import WITHOUT, requirements
from silosynth.deploy.sim.compose_file import MOST_SILOS, sim_compose, write_compose

REPOSITORY = Path(__file__).parents[2]
SILOS = ["silo-0", "silo-1", "silo-2"]


def test_each_silo_has_a_network_of_its_own_that_ends_at_the_server() -> None:
    composed = sim_compose(SILOS)
    services, networks = composed["services"], composed["networks"]
    for silo in SILOS:
        assert services[f"guard-{silo}"]["network_mode"] == "none"
        assert services[f"courier-{silo}"]["networks"] == [silo]
        assert networks[silo] == {"internal": True}
        assert services["address"]["networks"][silo] == {"aliases": ["server"]}


def test_a_silo_mounts_its_own_kit_only_and_the_courier_no_records() -> None:
    services = sim_compose(SILOS)["services"]
    for silo in SILOS:
        guard, courier = services[f"guard-{silo}"]["volumes"], services[f"courier-{silo}"]["volumes"]
        assert all(f"./federation/kits/{silo}/" in volume for volume in (*guard, *courier))
        assert not [volume for volume in courier if "records" in volume or f"{silo}/guard:" in volume]


def test_only_the_address_is_reached_from_outside_and_the_parts_share_it() -> None:
    services = sim_compose(SILOS)["services"]
    inside = {name for name, service in services.items() if service.get("network_mode") == "service:address"}
    assert {"superlink", "coordinator", "catalog", "dashboard", "admission"} <= inside
    assert [name for name, service in services.items() if service.get("ports")] == ["address"]
    assert services["address"]["ports"] == ["127.0.0.1:${DASHBOARD_PORT}:9097"]


def test_the_file_is_plain_yaml_that_says_where_it_comes_from(tmp_path: Path) -> None:
    write_compose(tmp_path / "compose.yml", SILOS)
    text = (tmp_path / "compose.yml").read_text()
    assert text.startswith("# Written by")
    assert "&id" not in text
    assert yaml.safe_load(text) == sim_compose(SILOS)


def test_more_silos_than_an_engine_has_networks_for_are_refused() -> None:
    with pytest.raises(ConfigError, match="engine process"):
        sim_compose([f"silo-{number}" for number in range(MOST_SILOS + 1)])


@pytest.mark.parametrize("part", sorted(WITHOUT))
def test_an_image_installs_what_pyproject_lists_but_for_what_its_part_lacks(part: str) -> None:
    everything = requirements(REPOSITORY / "pyproject.toml", "server")
    wanted = requirements(REPOSITORY / "pyproject.toml", part)
    assert len(everything) - len(wanted) == len(WITHOUT[part])
    assert set(wanted) <= set(everything)
