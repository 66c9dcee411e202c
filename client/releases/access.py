"""How somebody reaches a catalog: a silo by its certificate, a consumer by the token in the access file it was sent."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import grpc
from pydantic import Field

from silosynth.client.config import CourierConfig, HostAndPort
from silosynth.common import channels
from silosynth.common.config import Section, load
from silosynth.common.errors import ConfigError


class AccessConfig(Section):
    """access.toml, as `silosynth server grant` writes it: all that a consumer needs, in one file to be kept secret."""

    address: HostAndPort
    token: Annotated[str, Field(min_length=16)]
    publisher: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    """The public key that must have signed every release."""
    ca: Annotated[str, Field(pattern="-----BEGIN CERTIFICATE-----")]
    """PEM: who may be the server."""


@dataclass(frozen=True)
class Access:
    address: str
    publisher: str
    credentials: grpc.ChannelCredentials
    metadata: tuple[tuple[str, str], ...] = ()

    @classmethod
    def from_file(cls, path: Path) -> Access:
        config = load(AccessConfig, path)
        credentials = grpc.ssl_channel_credentials(root_certificates=config.ca.encode())
        return cls(config.address, config.publisher, credentials, (("authorization", f"Bearer {config.token}"),))

    @classmethod
    def of_silo(cls, config: CourierConfig) -> Access:
        if config.server.catalog is None or config.publisher is None:
            raise ConfigError(
                "courier.toml names no catalog: add `publisher` and, under [server], `catalog`, as the server says"
            )
        credentials = channels.client_credentials(config.ca, config.certificate, config.key)
        return cls(config.server.catalog, config.publisher, credentials)
