"""Releases: pictures, versions side by side, signatures, cost, cards."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from silosynth.common.errors import ConfigError, SilosynthError
from silosynth.common.publication.manifest import Manifest
from silosynth.common.publication.signature import SIGNATURE
from silosynth.common.publication.verification import read_signed_manifest, verify_cost
from silosynth.server.dashboard.sources import Published, Sources, read_manifest
from silosynth.server.dashboard.tags import Post, Public, View

PICTURE, CARD, PRIVACY_CARD = "contact-sheet.png", "README.md", "privacy-card.yaml"
GENUINE = "signed by this server"


@dataclass(frozen=True)
class ReleaseCard(View):
    release: Public[str]
    name: Public[str]
    version: Public[int]
    recipe: Public[str]
    created: Public[str]
    records: Post[int]
    bytes: Post[int]
    epsilon: Public[float | None]
    delta: Public[float]
    accuracy: Post[float | None]
    withdrawn: Public[str | None]
    signature: Public[str]
    genuine: Public[bool]
    picture: Post[bool]
    parent: Public[str | None]


@dataclass(frozen=True)
class ReleasesPage(View):
    releases: tuple[ReleaseCard, ...]


@dataclass(frozen=True)
class SiloCost(View):
    name: Public[str]
    epsilon: Public[float | None]


@dataclass(frozen=True)
class Check(View):
    what: Public[str]
    holds: Public[bool]
    words: Public[str]


@dataclass(frozen=True)
class ReleasePage(View):
    card: ReleaseCard
    sha256: Public[str]
    seed: Public[int]
    config_digest: Public[str]
    code: Public[str]
    shape: Public[str]
    classes: Public[tuple[str, ...]]
    files: Post[int]
    costs: tuple[SiloCost, ...]
    checks: tuple[Check, ...]
    readme: Post[str]
    privacy_card: Post[str]
    others: Public[tuple[str, ...]]  # versions to compare with


@dataclass(frozen=True)
class ComparisonPage(View):
    left: ReleasePage
    right: ReleasePage
    choices: Public[tuple[str, ...]]


def releases_page(sources: Sources) -> ReleasesPage:
    return ReleasesPage(tuple(release_card(sources, one) for one in sources.published()))


def release_card(sources: Sources, one: Published) -> ReleaseCard:
    entry, manifest = one.entry, sources.manifest(one.entry)
    problem = _signature_problem(sources.manifest_path(entry), sources.publisher())
    return ReleaseCard(
        release=one.name,
        name=entry.name,
        version=entry.version,
        recipe=entry.recipe,
        created=entry.created,
        records=entry.records,
        bytes=entry.size,
        epsilon=entry.epsilon,
        delta=entry.delta,
        accuracy=entry.accuracy,
        withdrawn=one.withdrawn,
        signature=problem or GENUINE,
        genuine=problem is None,
        picture=PICTURE in manifest.files,
        parent=None if entry.parent is None else f"{entry.name}/{entry.parent}",
    )


def release_page(sources: Sources, name: str, version: int) -> ReleasePage:
    one = sources.release(name, version)
    card, manifest = release_card(sources, one), sources.manifest(one.entry)
    return ReleasePage(
        card=card,
        sha256=one.entry.sha256,
        seed=manifest.run.seed,
        config_digest=manifest.run.config_digest,
        code=f"silosynth {manifest.code.silosynth}, sources {manifest.code.source_sha256[:12]}",
        shape=" x ".join(map(str, manifest.shape)),
        classes=manifest.classes,
        files=len(manifest.files),
        costs=tuple(SiloCost(silo, value) for silo, value in manifest.privacy.epsilon_by_silo.items()),
        checks=_checks(sources, one, card, manifest),
        readme=_text(sources, one, CARD).split("---\n", 2)[-1],
        privacy_card=_text(sources, one, PRIVACY_CARD),
        others=tuple(other.name for other in sources.published() if other.name != one.name),
    )


def comparison_page(
    sources: Sources, left: tuple[str, int] | None = None, right: tuple[str, int] | None = None
) -> ComparisonPage:
    """The two newest, unless told."""
    published = sources.published()
    if len(published) < 2:
        raise ConfigError("There are not yet two releases to compare.")
    newer, older = published[0].entry, published[1].entry
    left, right = left or (older.name, older.version), right or (newer.name, newer.version)
    names = tuple(one.name for one in published)
    return ComparisonPage(release_page(sources, *left), release_page(sources, *right), names)


def _checks(sources: Sources, one: Published, card: ReleaseCard, manifest: Manifest) -> tuple[Check, ...]:
    damaged, path = _misplaced(sources, one, manifest), sources.manifest_path(one.entry)
    problem = sources.reckoning.ask(path, lambda: _cost_problem(path))
    words = "being checked" if problem is None else problem or "every silo signed, and the epsilon follows from it"
    return (
        Check("Signature", card.genuine, card.signature),
        Check("Receipts and epsilon", not problem, words),
        Check("Files", not damaged, damaged or f"{len(manifest.files):,} are there, with the right sizes"),
    )


def _text(sources: Sources, one: Published, name: str) -> str:
    content = sources.document(one.entry, name)
    return "" if content is None else content.decode(errors="replace")


def _misplaced(sources: Sources, one: Published, manifest: Manifest) -> str:
    """Sizes only: `silosynth release verify` reads every byte."""
    for name, facts in manifest.files.items():
        path = sources.store.place_of(facts)
        if not path.exists() or path.stat().st_size != facts.bytes:
            return f"{name} is missing from the store, or damaged: restore the store from a backup"
    return ""


@lru_cache(maxsize=512)
def _signature_problem(path: Path, publisher: str | None) -> str | None:
    try:
        read_signed_manifest(path.read_bytes(), path.with_name(SIGNATURE).read_bytes(), publisher)
    except (SilosynthError, OSError) as error:
        return str(error)
    return None if publisher else "signed, but this server's own key cannot be read to compare"


def _cost_problem(path: Path) -> str:
    try:
        verify_cost(read_manifest(path))
    except SilosynthError as error:
        return str(error)
    return ""
