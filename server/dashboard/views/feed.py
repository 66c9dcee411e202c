"""The activity feed: what happened, in plain words, the newest first."""

from __future__ import annotations

from dataclasses import dataclass

from silosynth.server.dashboard.sources import Run
from silosynth.server.dashboard.tags import Post, Public, View

_BAD = ("failed", "without", "left_out", "rolled_back", "away", "not_scored", "not_compared")
_GOOD = ("released_dataset", "finished", "evaluated", "scored")


@dataclass(frozen=True)
class FeedLine(View):
    time: Public[float]
    run: Public[int]
    words: Post[str]  # may tell an accuracy
    mood: Public[str]  # good, bad, waiting or plain


def feed_of(runs: list[Run], most: int) -> tuple[FeedLine, ...]:
    told = [(sentence, run.number) for run in runs for sentence in run.story.feed[-most:]]
    told.sort(key=lambda line: (line[0].time, line[1]))
    latest = reversed(told[-most:])
    return tuple(FeedLine(line.time, number, line.words, _mood(line.kind)) for line, number in latest)


def _mood(kind: str) -> str:
    if kind == "waiting_for_consent":
        return "waiting"
    return "bad" if kind in _BAD else "good" if kind in _GOOD else "plain"
