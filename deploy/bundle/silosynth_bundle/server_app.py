"""The coordinator, as the server has installed it."""

from silosynth.server.coordinator import app

__all__ = ["app"]
