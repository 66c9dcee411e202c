"""The server's own work: how far it is, and how long it may take."""

from __future__ import annotations

from dataclasses import dataclass

from silosynth.server.dashboard.story import Story
from silosynth.server.dashboard.tags import Post, Public, View


@dataclass(frozen=True)
class Work(View):
    what: Public[str]
    share: Public[float]
    loss: Post[float | None]
    seconds_left: Public[float | None]


def work_of(story: Story) -> Work | None:
    """None when the server waits for silos, or is done."""
    if story.end is not None or story.work is None or not story.phases:
        return None
    share, phase = float(story.work["share"]), story.phases[-1]
    if phase.ended is not None or phase.name != str(story.work["what"]).capitalize():
        return None
    worked = float(story.work["time"]) - phase.begun
    left = worked * (1 - share) / share if share > 0 and worked > 0 else None
    return Work(phase.name, share, story.work["loss"], left)
