"""The mechanisms: one file each, all of the one shape the guard knows. To add one is to add a line here."""

from silosynth.client.guard.mechanism import Mechanisms
from silosynth.client.mechanisms.class_counts import class_counts
from silosynth.client.mechanisms.feature_sums import feature_sums
from silosynth.client.mechanisms.gradient_sums import gradient_sums
from silosynth.client.mechanisms.label_training import label_training
from silosynth.client.mechanisms.local_synthesis import local_synthesis
from silosynth.client.mechanisms.mixtures import mixtures
from silosynth.client.mechanisms.moments import moments
from silosynth.client.mechanisms.private_training import private_training
from silosynth.client.mechanisms.scores import scores
from silosynth.client.mechanisms.sufficient_statistics import sufficient_statistics
from silosynth.client.mechanisms.teacher_answers import teacher_answers
from silosynth.client.mechanisms.votes import votes
from silosynth.common.queries import (
    ClassCounts,
    FeatureSums,
    GradientSums,
    LabelTraining,
    LocalSynthesis,
    Mixtures,
    Moments,
    PrivateTraining,
    Scores,
    SufficientStatistics,
    TeacherAnswers,
    Votes,
)

MECHANISMS: Mechanisms = {
    ClassCounts.mechanism: class_counts,
    FeatureSums.mechanism: feature_sums,
    GradientSums.mechanism: gradient_sums,
    LabelTraining.mechanism: label_training,
    LocalSynthesis.mechanism: local_synthesis,
    Mixtures.mechanism: mixtures,
    Moments.mechanism: moments,
    PrivateTraining.mechanism: private_training,
    Scores.mechanism: scores,
    SufficientStatistics.mechanism: sufficient_statistics,
    TeacherAnswers.mechanism: teacher_answers,
    Votes.mechanism: votes,
}

__all__ = ["MECHANISMS"]
