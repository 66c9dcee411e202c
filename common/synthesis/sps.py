"""SPS and SPS+ as a conversation with whoever can answer queries: a server with its silos, or a silo with itself."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from silosynth.common.backbones import Backbone
from silosynth.common.queries import Moments, SufficientStatistics
from silosynth.common.synthesis.conversation import Answer, Job, Question, Synthesized
from silosynth.common.synthesis.paper_sps import paper_conversation, paper_queries
from silosynth.common.synthesis.spatial_sps import spatial_conversation, spatial_queries
from silosynth.common.synthesis.sps_parameters import SpsParameters

__all__ = ["Answer", "Job", "Question", "Synthesized", "converse", "questions"]


def converse(job: Job, parameters: SpsParameters, backbone: Backbone) -> Generator[Question, Answer, Synthesized]:
    if parameters.statistics == "spatial":
        return spatial_conversation(job, parameters, backbone)
    return paper_conversation(job, parameters, backbone)


def questions(job: Job, parameters: SpsParameters, backbone: Backbone) -> Sequence[Moments | SufficientStatistics]:
    """What will be asked, but for the names of files that come of earlier answers."""
    if parameters.statistics == "spatial":
        return spatial_queries(job, parameters, backbone)
    return paper_queries(job, parameters, backbone)
