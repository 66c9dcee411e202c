"""Releases: what a run hands to the world."""

from silosynth.server.releases.folder import write_release
from silosynth.server.releases.manifest import verify_release

__all__ = ["verify_release", "write_release"]
