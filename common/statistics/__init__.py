"""Statistics of activations that silos release and synthesis matches. Imports torch."""

from silosynth.common.statistics.moments import MomentStatistics, Statistics
from silosynth.common.statistics.packing import decode_center, encode_center, flatten, split, unflatten

__all__ = ["MomentStatistics", "Statistics", "decode_center", "encode_center", "flatten", "split", "unflatten"]
