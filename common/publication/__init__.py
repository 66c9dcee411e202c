"""Published releases as everyone sees them: names, files, signed manifest, and the proof of what they cost."""

from silosynth.common.publication.manifest import Manifest
from silosynth.common.publication.names import ReleaseName
from silosynth.common.publication.verification import verify_release

__all__ = ["Manifest", "ReleaseName", "verify_release"]
