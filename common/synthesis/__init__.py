"""Images from statistics: one engine, and a target for each kind of statistics. Imports torch."""

from silosynth.common.synthesis.engine import Report, Sketch, balanced_labels, synthesize
from silosynth.common.synthesis.settings import Settings, Workshop
from silosynth.common.synthesis.target import Target

__all__ = ["Report", "Settings", "Sketch", "Target", "Workshop", "balanced_labels", "synthesize"]
