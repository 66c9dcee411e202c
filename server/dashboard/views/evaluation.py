"""Evaluation: what the synthetic records are good for, beside what they cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from silosynth.server.dashboard.sources import Found, Published, Sources
from silosynth.server.dashboard.tags import Post, Public, View
from silosynth.server.dashboard.views.charts import Chart, Series
from silosynth.server.dashboard.views.evaluation_detail import Detail, detail_of


@dataclass(frozen=True)
class Standing(View):
    """One release in the table of all."""

    release: Public[str]
    recipe: Public[str]
    epsilon: Public[float | None]
    delta: Public[float]
    accuracy: Post[float | None]
    low: Post[float | None]
    high: Post[float | None]
    worst_class: Post[float | None]
    withdrawn: Public[bool]


@dataclass(frozen=True)
class EvaluationPage(View):
    frontier: Chart | None
    standings: tuple[Standing, ...]
    chosen: Public[str | None]
    detail: Detail | None


def evaluation_page(sources: Sources, release: tuple[str, int] | None = None) -> EvaluationPage:
    published = sources.published()
    reports = sources.evaluations(published)
    chosen = sources.release(*release) if release else next((one for one in published if one.name in reports), None)
    found = reports.get(chosen.name) if chosen else None
    return EvaluationPage(
        frontier=_frontier(published, reports),
        standings=tuple(_standing(one, reports.get(one.name)) for one in published),
        chosen=chosen.name if chosen else None,
        detail=detail_of(chosen, found, sources.manifest(chosen.entry).classes) if chosen and found else None,
    )


def _standing(one: Published, found: Found | None) -> Standing:
    report = found.document if found else {}
    interval = _interval(report)
    return Standing(
        release=one.name,
        recipe=one.entry.recipe,
        epsilon=one.entry.epsilon,
        delta=one.entry.delta,
        accuracy=report.get("accuracy"),
        low=interval.get("low"),
        high=interval.get("high"),
        worst_class=report.get("worst_class_accuracy"),
        withdrawn=one.withdrawn is not None,
    )


def _interval(report: dict[str, Any]) -> dict[str, Any]:
    return report.get("accuracy_interval") or {}


def _frontier(published: list[Published], reports: dict[str, Found]) -> Chart | None:
    """Epsilon beside accuracy, a colour for each recipe; infinite epsilons have no place on an axis."""
    by_recipe: dict[str, list[tuple[float, str, dict[str, Any]]]] = {}
    for one in published:
        if one.withdrawn is None and one.name in reports and one.entry.epsilon is not None:
            report = reports[one.name].document
            by_recipe.setdefault(one.entry.recipe, []).append((one.entry.epsilon, one.name, report))
    if not by_recipe:
        return None
    series = tuple(_points(recipe, sorted(found, key=lambda p: p[:2])) for recipe, found in sorted(by_recipe.items()))
    return Chart("Privacy spent, usefulness gained", "points", "epsilon", "accuracy", series, percent="y")


def _points(recipe: str, found: list[tuple[float, str, dict[str, Any]]]) -> Series:
    intervals = [_interval(report) for _, _, report in found]
    return Series(
        name=recipe,
        x=tuple(epsilon for epsilon, _, _ in found),
        y=tuple(report.get("accuracy") for _, _, report in found),
        low=tuple(interval.get("low") for interval in intervals),
        high=tuple(interval.get("high") for interval in intervals),
        names=tuple(name for _, name, _ in found),
    )
