"""Privacy evidence: what attacks found, beside the epsilon that is claimed (the form: server/attacks/report.py)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from silosynth.server.dashboard.sources import Found, Sources
from silosynth.server.dashboard.tags import Public, View
from silosynth.server.dashboard.views.charts import Chart, Series

Report = dict[str, Any]
_LEAST_RATE = 1e-4  # where the logarithmic axes begin


@dataclass(frozen=True)
class Claim(View):
    release: Public[str]
    recipe: Public[str]
    epsilon: Public[float | None]
    delta: Public[float]
    withdrawn: Public[bool]
    attacks: Public[int]  # reports about the same recipe


@dataclass(frozen=True)
class Rate(View):
    """Simulations run on public records: whatever an attack finds there is about nobody."""

    at: Public[str]
    share: Public[float]
    low: Public[float]
    high: Public[float]
    allowed: Public[float | None]


@dataclass(frozen=True)
class Attack(View):
    name: Public[str]
    method: Public[str]
    area: Public[float]
    area_low: Public[float]
    area_high: Public[float]
    decisions: Public[int]
    rates: tuple[Rate, ...]
    flagged: Public[bool]


@dataclass(frozen=True)
class Audit(View):
    mechanism: Public[str]
    method: Public[str]
    runs: Public[int]
    canaries: Public[int]
    guesses: Public[int]
    correct: Public[int]
    confidence: Public[float]
    claimed: Public[float | None]
    lower: Public[float]
    flagged: Public[bool]
    power: Public[float | None]  # share of audits that find a mechanism out whose noise is too small
    power_words: Public[str]


@dataclass(frozen=True)
class Evidence(View):
    place: Public[str]
    attacked: Public[str]
    recipe: Public[str]
    data: Public[str]
    silos: Public[int]
    runs: Public[int]
    claimed: Public[float | None]
    delta: Public[float]
    relation: Public[str]
    lower: Public[float | None]  # the largest that an audit found
    flagged: Public[bool]
    attacks: tuple[Attack, ...]
    audits: tuple[Audit, ...]
    roc: Chart | None
    cpu_seconds: Public[float]
    commit: Public[str | None]


@dataclass(frozen=True)
class EvidencePage(View):
    claims: tuple[Claim, ...]
    reports: tuple[Evidence, ...]
    unreadable: Public[tuple[str, ...]]  # files that are no reports, or another version's


def evidence_page(sources: Sources) -> EvidencePage:
    read = {found.place: _evidence(found) for found in sources.evidence("attacks.json")}
    reports = tuple(report for report in read.values() if report is not None)
    claims = (
        Claim(
            release=one.name,
            recipe=one.entry.recipe,
            epsilon=one.entry.epsilon,
            delta=one.entry.delta,
            withdrawn=one.withdrawn is not None,
            attacks=sum(report.recipe == one.entry.recipe for report in reports),
        )
        for one in sources.published()
    )
    return EvidencePage(tuple(claims), reports, tuple(place for place, report in read.items() if report is None))


def _evidence(found: Found) -> Evidence | None:
    try:
        return _read(found)
    except (KeyError, TypeError, ValueError):
        return None


def _read(found: Found) -> Evidence:
    report = found.document
    attacks = tuple(_attack(attack) for attack in report.get("membership", ()))
    audits = tuple(_audit(audit) for audit in report.get("audits", ()))
    return Evidence(
        place=found.place,
        attacked=report["attacked"],
        recipe=report["recipe"],
        data=report["data"],
        silos=report["silos"],
        runs=report["runs"],
        claimed=report["epsilon_claimed"],
        delta=report["delta"],
        relation=report["relation"],
        lower=max((audit.lower for audit in audits), default=None),
        flagged=any(attack.flagged for attack in attacks) or any(audit.flagged for audit in audits),
        attacks=attacks,
        audits=audits,
        roc=_roc(report),
        cpu_seconds=report["cpu_seconds"],
        commit=report.get("commit"),
    )


def _attack(attack: Report) -> Attack:
    rates = (("0.1 %", attack["tpr_at_0_1_percent"]), ("1 %", attack["tpr_at_1_percent"]))
    return Attack(
        name=attack["attack"],
        method=attack["method"],
        area=attack["area"],
        area_low=attack["area_interval"][0],
        area_high=attack["area_interval"][1],
        decisions=attack["members"] + attack["outsiders"],
        rates=tuple(Rate(at, r["value"], r["low"], r["high"], r.get("allowed")) for at, r in rates if r is not None),
        flagged=attack["flagged"],
    )


def _audit(audit: Report) -> Audit:
    power = audit["power"]
    return Audit(
        mechanism=audit["mechanism"],
        method=audit["method"],
        runs=audit["runs"],
        canaries=audit["canaries"],
        guesses=audit["guesses"],
        correct=audit["correct"],
        confidence=audit["confidence"],
        claimed=audit["epsilon_claimed"],
        lower=audit["epsilon_lower"],
        flagged=audit["flagged"],
        power=None if power is None else power["share"],
        power_words="" if power is None else _power_words(power),
    )


def _power_words(power: Report) -> str:
    tried = "computed" if power["audits"] is None else f"{power['audits']} audits"
    return f"noise divided by {power['noise_divided_by']:g}, {tried}"


def _roc(report: Report) -> Chart | None:
    """True beside false positives, both logarithmic, with what guessing gives and what the claim allows."""
    attacks = [attack for attack in report.get("membership", ()) if len(attack["roc"]) > 1]
    if not attacks:
        return None
    lines = [_curve(attack) for attack in attacks]
    grid = tuple(10 ** (power / 8) for power in range(-32, 1))
    lines.append(Series("guessing", grid, grid))
    if report["epsilon_claimed"] is not None:
        most = math.exp(min(report["epsilon_claimed"], 700.0))
        lines.append(Series("most the claim allows", grid, tuple(min(1.0, most * x + report["delta"]) for x in grid)))
    return Chart(
        "Membership inference",
        "line",
        "false positives",
        "true positives",
        tuple(lines),
        logarithmic="xy",
        percent="xy",
    )


def _curve(attack: Report) -> Series:
    points = {p["false_positive_rate"]: p["true_positive_rate"] for p in attack["roc"]}
    shown = [(x, y) for x, y in sorted(points.items()) if x >= _LEAST_RATE and y > 0]
    return Series(attack["attack"], tuple(x for x, _ in shown), tuple(y for _, y in shown))
