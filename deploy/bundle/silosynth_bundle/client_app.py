"""The courier, as the silo has installed it."""

from silosynth.client.courier import app

__all__ = ["app"]
