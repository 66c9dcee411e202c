"""The folders of a federation. Real sites and the local simulation are made of the same ones.

FEDERATION/
  authority/     the CA and its key: needed to add silos, else kept offline
  server/        server.toml with the list of silos, certificate, public node keys
  kits/<silo>/   what a site is sent: README.md, guard/ (silo.toml), courier/ (courier.toml, certificates, keys), and
                 what containers (compose.yml) or systemd (*.service) need to run it
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tomli_w
from cryptography.hazmat.primitives.serialization import Encoding

from silosynth.common.errors import ConfigError
from silosynth.deploy import kit_texts
from silosynth.deploy.addresses import all_interfaces, bracketed, split
from silosynth.deploy.kit_texts import Answers
from silosynth.deploy.provision import Authority, fingerprint, write_identity, write_node_key
from silosynth.server.config import ServerConfig, load_server
from silosynth.server.releases.keys import create_key, load_key, public_half

GUARD_SOCKET = "unix:../socket/guard.sock"  # a folder of its own: all that guard and courier need to share
_ALWAYS_VALID_HOSTS = ("localhost", "127.0.0.1")  # the server's own commands dial Flower on loopback
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_SILOS = "[[silos]]"


@dataclass(frozen=True)
class Place:
    """Where silos find the server: every name and address it goes by, and its ports."""

    hosts: tuple[str, ...]
    fleet_port: int = 9092
    exchange_port: int = 9093
    control_port: int = 9094
    catalog_port: int = 9095
    consumer_port: int = 9096
    dashboard_port: int = 9097
    metrics_port: int = 9098

    @classmethod
    def of(cls, servers: Sequence[str], **ports_by_name: int) -> Place:
        """From HOST or HOST:PORT each; the port is Flower's, so there can be but one."""
        named = [split(server, default_port=0) for server in servers]
        ports = sorted({port for _, port in named if port})
        if len(ports) > 1:
            raise ConfigError(f"Flower listens on one port, not on {', '.join(map(str, ports))}")
        hosts = tuple(host for host, _ in named)
        return cls(hosts, ports[0] if ports else cls.fleet_port, **ports_by_name)


@dataclass(frozen=True)
class Kit:
    """What a site has of a federation."""

    folder: Path

    @property
    def guard(self) -> Path:
        return self.folder / "guard"

    @property
    def courier(self) -> Path:
        return self.folder / "courier"

    @property
    def socket(self) -> Path:
        """Where guard and courier meet."""
        return self.folder / "socket"

    @property
    def records(self) -> Path:
        """Of a simulated silo. A real one's are where they are."""
        return self.folder / "records"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def releases(self) -> Path:
        """Finished datasets, pulled from the server's catalog."""
        return self.folder / "releases"

    @property
    def silo_toml(self) -> Path:
        return self.guard / "silo.toml"

    @property
    def courier_toml(self) -> Path:
        return self.courier / "courier.toml"


@dataclass(frozen=True)
class FederationFolder:
    """The folders of one federation, as `silosynth provision` keeps them."""

    folder: Path

    @classmethod
    def create(cls, folder: Path, place: Place) -> FederationFolder:
        if folder.exists() and any(folder.iterdir()):
            raise ConfigError(f"{folder} is not empty: choose a new folder, or add to a federation with --add-silo")
        federation = cls(folder.absolute())
        authority = Authority.create("silosynth federation")
        federation._write_authority(authority)
        federation._write_server(authority, place)
        return federation

    @classmethod
    def open(cls, folder: Path) -> FederationFolder:
        federation = cls(folder.absolute())
        if not federation._server_toml.exists():
            raise ConfigError(
                f"{folder} holds no federation: create one with `silosynth provision FOLDER --server HOST`"
            )
        return federation

    @property
    def authority(self) -> Path:
        return self.folder / "authority"

    @property
    def server(self) -> Path:
        return self.folder / "server"

    def kit(self, silo: str) -> Kit:
        return Kit(self.folder / "kits" / silo)

    def silos(self) -> list[str]:
        return [silo.name for silo in self._config().silos]

    def add_silo(self, silo: str, guard_address: str = GUARD_SOCKET, answers: Answers | None = None) -> Kit:
        """Write a silo's kit, then put it on the server's list."""
        kit = self.kit(silo)
        self._check_new(silo, kit)
        authority = Authority.load(self.authority)
        certificate, key = authority.issue(silo, [], server=False)
        for folder in (kit.folder, kit.guard, kit.courier, kit.socket, kit.releases):
            folder.mkdir(mode=0o700, parents=True)
        _write_ca(kit.courier, authority)
        write_identity(kit.courier, "silo", certificate, key)
        write_node_key(kit.courier)
        self._write_texts(kit, silo, guard_address, answers or Answers())
        self._list_silo(silo, kit, fingerprint(certificate))
        return kit

    def remove_silo(self, silo: str) -> None:
        """Take a silo off the server's list: from then on Flower and the exchange refuse it."""
        if silo not in self.silos():
            raise ConfigError(f"{silo} is not registered; registered are {', '.join(self.silos()) or 'none'}")
        self._rewrite_list([entry for entry in self._listed() if entry["name"] != silo])
        (self.server / "nodes" / f"{silo}.pub").unlink(missing_ok=True)

    @property
    def _server_toml(self) -> Path:
        return self.server / "server.toml"

    def _config(self) -> ServerConfig:
        return load_server(self._server_toml)

    def _check_new(self, silo: str, kit: Kit) -> None:
        if not _NAME.fullmatch(silo):
            raise ConfigError(
                f"{silo!r} cannot name a silo: letters, digits, dots, hyphens and underscores, at most 63"
            )
        if silo in self.silos():
            raise ConfigError(f"{silo} is registered already: choose another name, or remove it with --remove-silo")
        if kit.folder.exists():
            raise ConfigError(f"{kit.folder} exists and is not overwritten: move it away first")

    def _write_authority(self, authority: Authority) -> None:
        self.authority.mkdir(mode=0o700, parents=True)
        write_identity(self.authority, "ca", authority.certificate, authority.key)
        (self.authority / "README.md").write_text(kit_texts.AUTHORITY_README)

    def _write_server(self, authority: Authority, place: Place) -> None:
        hosts = [*dict.fromkeys((*place.hosts, *_ALWAYS_VALID_HOSTS))]
        self.server.mkdir(mode=0o700)
        (self.server / "nodes").mkdir()
        _write_ca(self.server, authority)
        write_identity(self.server, "server", *authority.issue("server", hosts, server=True))
        create_key(self.server)
        ports = {
            "fleet_port": place.fleet_port,
            "exchange_port": place.exchange_port,
            "control_port": place.control_port,
            "catalog_port": place.catalog_port,
            "consumer_port": place.consumer_port,
            "dashboard_port": place.dashboard_port,
            "metrics_port": place.metrics_port,
        }
        listen, public_host = all_interfaces(place.hosts[0]), bracketed(place.hosts[0])
        self._server_toml.write_text(kit_texts.SERVER_TOML.format(listen=listen, public_host=public_host, **ports))
        (self.server / ".env").write_text(kit_texts.server_env(**ports))
        kit_texts.write_from_templates("server", self.server)

    def _write_texts(self, kit: Kit, silo: str, guard_address: str, answers: Answers) -> None:
        config = self._config()
        fleet = f"{config.exchange.public_host}:{split(config.flower.fleet)[1]}"
        exchange = f"{config.exchange.public_host}:{config.exchange.port}"
        catalog = f"{config.exchange.public_host}:{config.catalog.port}"
        publisher = public_half(load_key(self.server))
        facts = {"silo": silo, "fleet": fleet, "exchange": exchange, "catalog": catalog, "publisher": publisher}
        kit.silo_toml.write_text(kit_texts.silo_toml(silo, guard_address, answers))
        kit.courier_toml.write_text(kit_texts.COURIER_TOML.format(**facts, address=guard_address))
        (kit.folder / ".env").write_text(kit_texts.silo_env())
        kit_texts.write_from_templates("silo", kit.folder, **facts)

    def _list_silo(self, silo: str, kit: Kit, certificate: str) -> None:
        public_key = Path("nodes") / f"{silo}.pub"
        (self.server / public_key).write_bytes((kit.courier / "node.pub").read_bytes())
        entry = {"name": silo, "node_key": str(public_key), "certificate": certificate}
        self._rewrite_list([*self._listed(), entry])

    def _listed(self) -> list[dict[str, str]]:
        return [
            {**silo.model_dump(mode="json"), "node_key": f"nodes/{silo.node_key.name}"} for silo in self._config().silos
        ]

    def _rewrite_list(self, entries: list[dict[str, str]]) -> None:
        """The list is the end of server.toml; what stands before it, comments included, is left as it is."""
        head = self._server_toml.read_text().partition(_SILOS)[0].rstrip("\n")
        listed = "".join(f"\n{_SILOS}\n{tomli_w.dumps(entry)}" for entry in entries)
        scratch = self._server_toml.with_suffix(".new")
        scratch.write_text(f"{head}\n{listed}")
        scratch.replace(self._server_toml)


def _write_ca(folder: Path, authority: Authority) -> None:
    (folder / "ca.crt").write_bytes(authority.certificate.public_bytes(Encoding.PEM))
