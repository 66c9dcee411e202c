"""The dashboard as a process: python -m silosynth.server.dashboard.process --folder SERVER."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import uvicorn

from silosynth.common.errors import ConfigError, SilosynthError
from silosynth.server.config import DashboardSettings, load_server
from silosynth.server.dashboard.app import create_app
from silosynth.server.dashboard.sources import Sources
from silosynth.server.releases.tokens import DASHBOARD_TOKENS_FOLDER, Tokens

_STOP_SECONDS = 2  # browsers hold their stream of events open for as long as they can


def serve(folder: Path, settings: DashboardSettings, ready: Callable[[str], None]) -> None:
    """Serve a server folder until SIGTERM or SIGINT: in the clear on loopback, else with TLS and login by token.

    `ready` is told the address for a browser.
    """
    server = load_server(folder / "server.toml")
    tokens = None if settings.is_local else Tokens(folder, DASHBOARD_TOKENS_FOLDER)
    identity = server.exchange
    config = uvicorn.Config(
        create_app(Sources(folder), tokens),
        host=settings.host,
        port=settings.port,
        log_level="error",
        server_header=False,
        timeout_graceful_shutdown=_STOP_SECONDS,
        ssl_certfile=None if settings.is_local else str(identity.certificate),
        ssl_keyfile=None if settings.is_local else str(identity.key),
    )
    try:
        socket = config.bind_socket()
    except SystemExit as error:  # uvicorn's word for it
        raise ConfigError(
            f"the dashboard cannot listen on {settings.host}:{settings.port}: another program holds the port, or the "
            "host is not this machine's; choose others with --host and --port, or in server.toml"
        ) from error
    bound = settings.model_copy(update={"port": socket.getsockname()[1]})
    ready(server.model_copy(update={"dashboard": bound}).dashboard_address)
    uvicorn.Server(config).run(sockets=[socket])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    folder = parser.parse_args().folder
    try:
        serve(
            folder,
            load_server(folder / "server.toml").dashboard,
            lambda address: print(f"ready: {address}", flush=True),
        )
    except SilosynthError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
