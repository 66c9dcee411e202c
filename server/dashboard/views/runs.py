"""Runs: what was asked for, how it went, phase by phase and silo by silo."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from silosynth.server.dashboard.sources import Run, Sources
from silosynth.server.dashboard.story import Part, Story
from silosynth.server.dashboard.tags import Post, Public, View
from silosynth.server.dashboard.views.charts import Chart, Series
from silosynth.server.dashboard.views.feed import FeedLine, feed_of
from silosynth.server.dashboard.views.work import Work, work_of

_FEED_LINES = 200
_MOST_POINTS = 400  # of a curve


@dataclass(frozen=True)
class RunRow(View):
    number: Public[int]
    name: Public[str]
    recipe: Public[str]
    epsilon: Public[float]
    silos: Public[int]
    state: Public[str]
    begun: Public[float | None]
    seconds: Public[float]
    release: Public[str | None]
    message: Public[str]


@dataclass(frozen=True)
class RunsPage(View):
    runs: tuple[RunRow, ...]


@dataclass(frozen=True)
class Setting(View):
    name: Public[str]
    words: Public[str]


@dataclass(frozen=True)
class PhaseBar(View):
    name: Public[str]
    seconds: Public[float]
    left: Public[float]  # where it begins and how long it is, in per cent of the whole run
    width: Public[float]
    ended: Public[bool]


@dataclass(frozen=True)
class SiloPart(View):
    name: Public[str]
    state: Public[str]
    fraction: Public[float]
    bytes: Public[int]
    answers: Public[int]
    within_seconds: Public[int | None]
    """Of its slowest answer, rounded up to a power of two. How long a silo takes is not hidden from the server, as
    every privacy card says; the dashboard need not tell it to the second."""
    spent: Public[float | None]
    total: Public[float | None]
    waits_for: Public[str]


@dataclass(frozen=True)
class RunPage(View):
    run: RunRow
    config_digest: Public[str]
    delta: Public[float]
    quorum: Public[int]
    settings: tuple[Setting, ...]
    phases: tuple[PhaseBar, ...]
    silos: tuple[SiloPart, ...]
    work: Work | None
    loss: Chart | None
    picture: Post[str | None]
    feed: tuple[FeedLine, ...]


def runs_page(sources: Sources) -> RunsPage:
    return RunsPage(tuple(_row(run) for run in sources.runs()))


def run_page(sources: Sources, number: int) -> RunPage:
    run = sources.run(number)
    story, config = run.story, run.config
    return RunPage(
        run=_row(run),
        config_digest=config.digest(),
        delta=config.privacy.delta,
        quorum=config.federation.quorum,
        settings=tuple(Setting(name, value) for name, value in _settings(config.model_dump(mode="json"))),
        phases=_phases(story),
        silos=tuple(_part(part) for part in story.parts.values()),
        work=work_of(story),
        loss=_loss(story),
        picture=run.picture,
        feed=feed_of([run], _FEED_LINES),
    )


def _row(run: Run) -> RunRow:
    story, config = run.story, run.config
    return RunRow(
        number=run.number,
        name=config.name,
        recipe=config.recipe,
        epsilon=config.privacy.epsilon,
        silos=len(config.federation.silos),
        state=story.state,
        begun=story.begun,
        seconds=story.seconds,
        release=story.release,
        message=str(story.end.get("message", "")) if story.end else "",
    )


def _settings(table: dict[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """As run.toml has them, what is not set left out. A path tells more of the machine than anybody needs."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _settings(value, f"{before}{name}.")
        elif value is not None and value not in ([], "") and name != "path":
            yield before + name, value if isinstance(value, str) else json.dumps(value)


def _phases(story: Story) -> tuple[PhaseBar, ...]:
    begun, ends = story.begun or 0.0, story.last_news or 0.0
    if story.end is None and not story.is_quiet:
        ends = time.time()
    whole = max(ends - begun, 1e-3)
    return tuple(
        PhaseBar(
            name=phase.name,
            seconds=(phase.ended or ends) - phase.begun,
            left=100 * (phase.begun - begun) / whole,
            width=max(100 * ((phase.ended or ends) - phase.begun) / whole, 0.4),
            ended=phase.ended is not None,
        )
        for phase in story.phases
    )


def _part(part: Part) -> SiloPart:
    within = 2 ** math.ceil(math.log2(max(part.slowest_seconds, 1.0))) if part.answers else None
    return SiloPart(
        name=part.silo,
        state=part.state,
        fraction=part.fraction,
        bytes=part.bytes,
        answers=part.answers,
        within_seconds=within,
        spent=part.spent,
        total=part.total,
        waits_for=part.waits_for,
    )


def _loss(story: Story) -> Chart | None:
    curves = [curve for curve in story.curves if len(curve.losses) > 1]
    if not curves:
        return None
    series = []
    for curve in curves:
        every = math.ceil(len(curve.losses) / _MOST_POINTS)
        series.append(Series(curve.name, tuple(curve.seconds[::every]), tuple(curve.losses[::every])))
    return Chart("Loss of the synthesis", "line", "seconds since it began", "loss", tuple(series))
