"""Queries: what a server may ask. A query knows, from public parameters alone, its layout, sensitivity and event.

The silo's copy of this code is the one that counts: the guard computes sensitivity and event itself.
"""

from silosynth.common.queries.base import Plan, Query, charges_of, decode, digest, encode
from silosynth.common.queries.class_counts import ClassCounts
from silosynth.common.queries.feature_sums import FeatureSums
from silosynth.common.queries.gradient_sums import GradientSums
from silosynth.common.queries.label_training import LabelTraining
from silosynth.common.queries.local_synthesis import LocalSynthesis
from silosynth.common.queries.mixtures import Mixtures
from silosynth.common.queries.moments import Moments
from silosynth.common.queries.private_training import PrivateTraining
from silosynth.common.queries.scores import Scores
from silosynth.common.queries.sufficient_statistics import SufficientStatistics
from silosynth.common.queries.teacher_answers import TeacherAnswers
from silosynth.common.queries.votes import Votes

__all__ = [
    "ClassCounts",
    "FeatureSums",
    "GradientSums",
    "LabelTraining",
    "LocalSynthesis",
    "Mixtures",
    "Moments",
    "Plan",
    "PrivateTraining",
    "Query",
    "Scores",
    "SufficientStatistics",
    "TeacherAnswers",
    "Votes",
    "charges_of",
    "decode",
    "digest",
    "encode",
]
