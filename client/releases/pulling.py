"""The silo's own puller: whenever the catalog has something new, it is fetched, verified and put on the silo's shelf.

A process of its own, installed by the silo: python -m silosynth.client.releases.pulling --courier courier.toml
--into releases. It holds the courier's certificate and reads no records; releases are public data that come in.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from silosynth.client.config import ANNOUNCED, load_courier
from silosynth.client.releases.access import Access
from silosynth.client.releases.catalog import Catalog
from silosynth.client.releases.shelf import Shelf
from silosynth.common.errors import SilosynthError
from silosynth.common.publication.names import ReleaseName

_ASK_SECONDS, _LONGEST_PAUSE = 60.0, 600.0  # without news from the courier
_FIRST_PAUSE, _LOOK_SECONDS = 5.0, 0.5


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


def keep_pulling(catalog: Catalog, shelf: Shelf, announced: Path) -> None:
    """For ever: at the start, whenever the courier was told of something new, and now and then.

    Whatever goes wrong is said and tried again, ever more rarely: nothing else depends on it.
    """
    trouble = _FIRST_PAUSE
    while True:
        seen = _version(announced)
        try:
            for release in pull_new(catalog, shelf):
                print(f"pulled and verified {release}: {shelf.place(release)}", flush=True)
            pause, trouble = _ASK_SECONDS, _FIRST_PAUSE
        except (SilosynthError, OSError) as error:
            print(f"{type(error).__name__}: {error}; trying again in {trouble:g} s", flush=True)
            pause, trouble = trouble, min(2 * trouble, _LONGEST_PAUSE)
        _wait_for_news(announced, seen, pause)


def _wait_for_news(announced: Path, seen: int, seconds: float) -> None:
    ends = time.monotonic() + seconds
    while _version(announced) == seen and time.monotonic() < ends:
        time.sleep(_LOOK_SECONDS)


def _version(announced: Path) -> int:
    return announced.stat().st_mtime_ns if announced.exists() else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--courier", type=Path, required=True)
    parser.add_argument("--into", type=Path, required=True)
    options = parser.parse_args()
    try:
        catalog = Catalog(Access.of_silo(load_courier(options.courier)))
        keep_pulling(catalog, Shelf(options.into), options.courier.parent / ANNOUNCED)
    except SilosynthError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
