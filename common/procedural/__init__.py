"""Public images from nothing but arithmetic: no data set, no licence, the same for everyone who has the seed."""

from silosynth.common.procedural.batches import VERSION, class_count, procedural_batches

__all__ = ["VERSION", "class_count", "procedural_batches"]
