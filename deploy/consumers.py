"""Granting access to the catalog: the one file a consumer needs."""

from __future__ import annotations

from pathlib import Path

import tomli_w

from silosynth.common.errors import ConfigError
from silosynth.deploy.provision import write_secret
from silosynth.deploy.server_folder import ServerFolder
from silosynth.server.releases.keys import load_key, public_half
from silosynth.server.releases.tokens import Tokens

_HEAD = """\
# Access of {consumer} to the datasets of a silosynth federation: silosynth release list --access THIS-FILE
# The token is a password: keep this file to yourself.
"""


def write_access(server: ServerFolder, consumer: str, path: Path) -> None:
    if path.exists():
        raise ConfigError(f"{path} exists and is not overwritten: choose another file with --access")
    config = server.config()
    access = {
        "address": f"{config.exchange.public_host}:{config.catalog.consumer_port}",
        "publisher": public_half(load_key(server.folder)),
        "token": Tokens(server.folder).grant(consumer),
        "ca": config.exchange.ca.read_text(),
    }
    write_secret(path, (_HEAD.format(consumer=consumer) + tomli_w.dumps(access, multiline_strings=True)).encode())
