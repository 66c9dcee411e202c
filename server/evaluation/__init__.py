"""Is it useful? Models trained on synthetic data, tested on public records."""

from silosynth.server.evaluation.models import model_for, models_for
from silosynth.server.evaluation.report import ArchitectureScore, Evaluation
from silosynth.server.evaluation.scores import ceiling, evaluate

__all__ = ["ArchitectureScore", "Evaluation", "ceiling", "evaluate", "model_for", "models_for"]
