"""The catalog as a process: python -m silosynth.server.releases.catalog_process --folder SERVER."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from pathlib import Path

from silosynth.common.errors import SilosynthError
from silosynth.server.config import load_server
from silosynth.server.releases.catalog import Catalog, serve_catalog
from silosynth.server.releases.store import STORE_FOLDER, Store
from silosynth.server.releases.tokens import Tokens

_STOP_SECONDS = 5.0


def serve(folder: Path) -> None:
    """Serve the releases of a server folder until SIGTERM or SIGINT."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    toml = folder / "server.toml"
    catalog = Catalog(Store(folder / STORE_FOLDER), Tokens(folder), lambda: load_server(toml))
    server, port, consumer_port = serve_catalog(catalog, load_server(toml))
    print(f"catalog ready: silos {port}, consumers {consumer_port}", flush=True)
    stop.wait()
    server.stop(_STOP_SECONDS).wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    try:
        serve(parser.parse_args().folder)
    except SilosynthError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
