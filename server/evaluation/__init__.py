"""Is it useful? Models trained on synthetic data, tested on public records."""

from silosynth.server.evaluation.models import model_for
from silosynth.server.evaluation.scores import Evaluation, ceiling, evaluate

__all__ = ["Evaluation", "ceiling", "evaluate", "model_for"]
