"""Federation: who takes part, what runs now, what has happened lately."""

from __future__ import annotations

import contextlib
import hashlib
import time
from dataclasses import dataclass

from silosynth.common.errors import ConfigError
from silosynth.common.heads import Head
from silosynth.server.config import SiloEntry
from silosynth.server.dashboard.sources import Run, Sources
from silosynth.server.dashboard.story import Part
from silosynth.server.dashboard.tags import Post, Public, View
from silosynth.server.dashboard.views.feed import FeedLine, feed_of
from silosynth.server.dashboard.views.work import Work, work_of
from silosynth.server.releases.entries import Entry

_FEED_LINES = 14


@dataclass(frozen=True)
class SiloCard(View):
    name: Public[str]
    certificate: Public[str]  # SHA-256, as the server lists it
    key: Public[str | None]  # SHA-256 of the key that signs its ledger, once seen
    version: Public[str | None]  # of silosynth, as its guard says
    dataset: Public[str | None]
    last_seen: Public[float | None]
    waits_for: Public[str]  # a query that its people have yet to decide on
    entries: Public[int]  # of its ledger, as witnessed


@dataclass(frozen=True)
class SiloProgress(View):
    name: Public[str]
    state: Public[str]
    fraction: Public[float]
    bytes: Public[int]


@dataclass(frozen=True)
class LiveRun(View):
    number: Public[int]
    name: Public[str]
    recipe: Public[str]
    epsilon: Public[float]
    delta: Public[float]
    phase: Public[str]
    begun: Public[float | None]
    quiet_since: Public[float | None]  # when it has been silent for long
    silos: tuple[SiloProgress, ...]
    work: Work | None
    picture: Post[str | None]


@dataclass(frozen=True)
class Headline(View):
    """Privacy spent beside usefulness gained."""

    release: Public[str]
    recipe: Public[str]
    epsilon: Public[float | None]
    delta: Public[float]
    accuracy: Post[float | None]
    records: Post[int]
    created: Public[str]


@dataclass(frozen=True)
class FederationPage(View):
    now: Public[float]
    silos: tuple[SiloCard, ...]
    live: tuple[LiveRun, ...]
    headline: Headline | None
    runs: Public[int]
    releases: Public[int]
    feed: tuple[FeedLine, ...]


def federation_page(sources: Sources) -> FederationPage:
    runs, published = sources.runs(), [one for one in sources.published() if one.withdrawn is None]
    return FederationPage(
        now=time.time(),
        silos=_silos(sources, runs),
        live=tuple(_live(run) for run in runs if run.story.end is None),
        headline=_headline(published[0].entry) if published else None,
        runs=len(runs),
        releases=len(published),
        feed=feed_of(runs, _FEED_LINES),
    )


def _headline(entry: Entry) -> Headline:
    return Headline(
        release=str(entry.release),
        recipe=entry.recipe,
        epsilon=entry.epsilon,
        delta=entry.delta,
        accuracy=entry.accuracy,
        records=entry.records,
        created=entry.created,
    )


def _silos(sources: Sources, runs: list[Run]) -> tuple[SiloCard, ...]:
    heads: dict[str, Head] = {}
    with contextlib.suppress(ConfigError):  # the audit page tells what is wrong with them
        heads = {head.silo: head for head in sources.heads()}
    cards = []
    for entry in sources.server().silos:
        parts = [run.story.parts[entry.name] for run in runs if entry.name in run.story.parts]
        waits = [run.story.parts[entry.name].waits_for for run in runs if _undecided(run, entry.name)]
        head = heads.get(entry.name)
        key = hashlib.sha256(head.public_key).hexdigest() if head else None
        cards.append(_silo(entry, parts, key, head.sequence if head else 0, waits[0] if waits else ""))
    return tuple(cards)


def _silo(entry: SiloEntry, parts: list[Part], key: str | None, entries: int, waits_for: str) -> SiloCard:
    seen = [part for part in parts if part.last_seen is not None]
    return SiloCard(
        name=entry.name,
        certificate=entry.certificate,
        key=key,
        version=next((part.version for part in seen if part.version), None),
        dataset=next((part.dataset for part in seen if part.dataset), None),
        last_seen=seen[0].last_seen if seen else None,
        waits_for=waits_for,
        entries=entries,
    )


def _undecided(run: Run, silo: str) -> bool:
    return run.story.end is None and silo in run.story.parts and bool(run.story.parts[silo].waits_for)


def _live(run: Run) -> LiveRun:
    story, config = run.story, run.config
    return LiveRun(
        number=run.number,
        name=config.name,
        recipe=config.recipe,
        epsilon=config.privacy.epsilon,
        delta=config.privacy.delta,
        phase=story.phases[-1].name if story.phases else "Submitted",
        begun=story.begun,
        quiet_since=story.last_news if story.is_quiet else None,
        silos=tuple(SiloProgress(p.silo, p.state, p.fraction, p.bytes) for p in story.parts.values()),
        work=work_of(story),
        picture=run.picture,
    )
