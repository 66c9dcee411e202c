"""silosynth for those who use its datasets: `silosynth.load("demo/3")` is a torch Dataset. The rest are commands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from silosynth.client.releases.dataset import ReleaseDataset

__all__ = ["load"]


def load(release: str | Path, shelf: Path | None = None, publisher: str | None = None) -> ReleaseDataset:
    """A pulled release by its name, such as "demo/3", or any release folder by its path; verified before it is read.

    `shelf` is where `silosynth release pull` put it, if not in the usual place; `publisher` the public key that must
    have signed it.
    """
    from silosynth.client.releases.dataset import load_dataset  # torch, which the guard must not import

    return load_dataset(release, shelf, publisher)
