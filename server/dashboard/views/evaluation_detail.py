"""One release's evaluation in full, as its evaluation.json tells it (the form: server/evaluation/report.py)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from silosynth.server.dashboard.sources import Found, Published
from silosynth.server.dashboard.tags import Dp, Post, Public, View
from silosynth.server.dashboard.views.charts import Chart, Series

Report = dict[str, Any]


@dataclass(frozen=True)
class Rung(View):
    """One bar of the ladder from floor to ceiling."""

    words: Public[str]
    accuracy: Post[float]
    low: Post[float | None] = None
    high: Post[float | None] = None
    kind: Public[str] = "other"  # floor, this, other or ceiling


@dataclass(frozen=True)
class ClassScore(View):
    name: Public[str]
    accuracy: Post[float | None]
    worst: Post[bool]


@dataclass(frozen=True)
class Architecture(View):
    name: Public[str]
    accuracy: Post[float]
    low: Post[float]
    high: Post[float]
    ensemble: Post[float]
    seeds: Public[int]
    steps: Public[int]


@dataclass(frozen=True)
class SilosOwn(View):
    """A score on the silos' own records, which they were asked and charged for."""

    accuracy: Dp[float | None]
    low: Dp[float | None]
    high: Dp[float | None]
    silos: Public[int]
    epsilon: Public[float]


@dataclass(frozen=True)
class Likeness(View):
    space: Public[str]
    distance: Post[float]
    distance_of_reference: Public[float]
    density: Post[float]
    coverage: Post[float]
    variety: Post[float | None]


@dataclass(frozen=True)
class Detail(View):
    release: Public[str]
    measured_anew: Public[str]  # where, if since the release
    model: Public[str]
    protocol: Public[str]
    interval_method: Public[str]
    test_records: Public[int]
    cpu_seconds: Public[float]
    rungs: tuple[Rung, ...]
    classes: tuple[ClassScore, ...]
    architectures: tuple[Architecture, ...]
    silos_own: SilosOwn | None
    likeness: Likeness | None
    calibration: Chart | None
    calibration_error: Post[float | None]


def detail_of(one: Published, found: Found, class_names: tuple[str, ...]) -> Detail | None:
    """None for what another version of silosynth wrote."""
    try:
        return _detail(one, found, class_names)
    except (KeyError, TypeError, ValueError):
        return None


def _detail(one: Published, found: Found, class_names: tuple[str, ...]) -> Detail:
    report = found.document
    calibration = report.get("calibration") or {}
    return Detail(
        release=one.name,
        measured_anew=found.place,
        model=report["model"],
        protocol=report.get("protocol", "quick"),
        interval_method=(report.get("accuracy_interval") or {}).get("method", ""),
        test_records=report["test_records"],
        cpu_seconds=report["cpu_seconds"],
        rungs=tuple(_rungs(report)),
        classes=tuple(
            ClassScore(name, value, label == report["worst_class"])
            for label, (name, value) in enumerate(zip(class_names, report["accuracy_by_class"], strict=True))
        ),
        architectures=tuple(_architectures(report)),
        silos_own=_silos_own(report.get("on_silos")),
        likeness=_likeness(report.get("likeness")),
        calibration=_reliability(calibration.get("bins", [])),
        calibration_error=calibration.get("expected_error"),
    )


def _rungs(report: Report) -> Iterator[Rung]:
    """From floor to ceiling: what is known of other ways stands between, the worst first."""
    yield Rung("Floor: always the largest class", report["floor"], kind="floor")
    others = []
    for name, baseline in report.get("baselines", {}).items():
        cost = "no privacy" if baseline["epsilon"] is None else f"ε {baseline['epsilon']:.3g}"
        others.append(Rung(f"Floor: {name}, {cost}", baseline["accuracy"]))
    if report.get("own_classifier_accuracy") is not None:
        others.append(Rung("The recipe's own classifier", report["own_classifier_accuracy"]))
    yield from sorted(others, key=lambda rung: rung.accuracy)
    interval = report.get("accuracy_interval") or {}
    yield Rung("Trained on this release", report["accuracy"], interval.get("low"), interval.get("high"), "this")
    if report.get("accuracy_ensemble") is not None:
        yield Rung("All seeds together", report["accuracy_ensemble"])
    if report.get("ceiling") is not None:
        yield Rung("Ceiling: pooled real records, no privacy", report["ceiling"], kind="ceiling")


def _architectures(report: Report) -> Iterator[Architecture]:
    for name, score in report.get("by_architecture", {}).items():
        yield Architecture(
            name=name,
            accuracy=score["accuracy"],
            low=score["accuracy_interval"]["low"],
            high=score["accuracy_interval"]["high"],
            ensemble=score["accuracy_ensemble"],
            seeds=len(score["accuracy_by_seed"]),
            steps=score["steps"],
        )


def _silos_own(own: Report | None) -> SilosOwn | None:
    if own is None:
        return None
    interval = own["accuracy_interval"] or {}
    return SilosOwn(own["accuracy"], interval.get("low"), interval.get("high"), own["silos"], own["epsilon"])


def _likeness(like: Report | None) -> Likeness | None:
    names = ("space", "distance", "distance_of_reference", "density", "coverage", "variety")
    return None if like is None else Likeness(*(like[name] for name in names))


def _reliability(bins: list[Report]) -> Chart | None:
    if not bins:
        return None
    sure, right = tuple(part["confidence"] for part in bins), tuple(part["accuracy"] for part in bins)
    ideal = Series("ideal", (0.0, 1.0), (0.0, 1.0))
    lines = (Series("measured", sure, right), ideal)
    return Chart("As sure as it is right?", "line", "how sure", "how often right", lines, percent="xy")
