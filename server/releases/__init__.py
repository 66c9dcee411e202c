"""Releases: what a run hands to the world."""

from silosynth.server.releases.folder import verify_release, write_release

__all__ = ["verify_release", "write_release"]
