"""The silo's own puller: whenever the catalog has something new, it is fetched, verified and put on the silo's shelf.

A process of its own, installed by the silo: python -m silosynth.client.releases.pulling --courier courier.toml
--into releases. It holds the courier's certificate and reads no records; releases are public data that come in.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from silosynth.client.config import load_courier
from silosynth.client.releases.access import Access
from silosynth.client.releases.catalog import Catalog
from silosynth.client.releases.shelf import Shelf
from silosynth.common.errors import SilosynthError
from silosynth.common.publication.names import ReleaseName

_POLL_SECONDS, _LONGEST_PAUSE = 5.0, 300.0


def pull_new(catalog: Catalog, shelf: Shelf) -> list[ReleaseName]:
    """Fetch what the shelf lacks and note what was taken back; returns what is new."""
    pulled = []
    for entry in catalog.releases():
        release = ReleaseName(entry.name, entry.version)
        if entry.HasField("withdrawn"):
            if shelf.holds(release) and shelf.withdrawn(release) is None:
                shelf.note_withdrawal(release, entry.withdrawn)
        elif not shelf.holds(release):
            catalog.pull(release, shelf)
            pulled.append(release)
    return pulled


def keep_pulling(catalog: Catalog, shelf: Shelf) -> None:
    """For ever. Whatever goes wrong is said and tried again, ever more rarely: nothing else depends on it."""
    pause = _POLL_SECONDS
    while True:
        try:
            for release in pull_new(catalog, shelf):
                print(f"pulled and verified {release}: {shelf.place(release)}", flush=True)
            pause = _POLL_SECONDS
        except (SilosynthError, OSError) as error:
            print(f"{type(error).__name__}: {error}; trying again in {pause:g} s", flush=True)
            pause = min(2 * pause, _LONGEST_PAUSE)
        time.sleep(pause)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--courier", type=Path, required=True)
    parser.add_argument("--into", type=Path, required=True)
    options = parser.parse_args()
    try:
        keep_pulling(Catalog(Access.of_silo(load_courier(options.courier))), Shelf(options.into))
    except SilosynthError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
