"""Is it useful? Models trained on synthetic data, tested on public records."""

from silosynth.server.evaluation.models import model_for, models_for
from silosynth.server.evaluation.report import ArchitectureScore, Evaluation, SiloScore
from silosynth.server.evaluation.scores import ceiling, evaluate
from silosynth.server.evaluation.silo_scores import SiloScoring, score_query

__all__ = [
    "ArchitectureScore",
    "Evaluation",
    "SiloScore",
    "SiloScoring",
    "ceiling",
    "evaluate",
    "model_for",
    "models_for",
    "score_query",
]
