"""Budget: what every silo has spent, what runs under way may still spend, what is left."""

from __future__ import annotations

from dataclasses import dataclass

from silosynth.common.events import cost, of_labels
from silosynth.common.publication.accounting import unit_of
from silosynth.server.dashboard.proofs import Proven, proven_by_silo, spent
from silosynth.server.dashboard.sources import Run, Sources
from silosynth.server.dashboard.story import Part
from silosynth.server.dashboard.tags import Public, View
from silosynth.server.dashboard.views.charts import Chart, Series
from silosynth.server.dashboard.views.plan import PlanForm, PlanResult, Wish, plan_form, planned

_USUAL_DELTA = 1e-5


@dataclass(frozen=True)
class SiloBudget(View):
    """What the silo last declared; and what receipts held here prove, which is less if it answers others, too."""

    name: Public[str]
    dataset: Public[str | None]
    total: Public[float | None]
    spent: Public[float | None]
    reserved: Public[float]
    remaining: Public[float | None]
    delta: Public[float]
    declared_at: Public[float | None]
    proven: Public[float | None]  # None while it is being computed
    receipts: Public[int]
    spent_share: Public[float]  # of the bar, in per cent
    reserved_share: Public[float]


@dataclass(frozen=True)
class ReleaseCost(View):
    release: Public[str]
    recipe: Public[str]
    epsilon: Public[float | None]
    delta: Public[float]
    silos: Public[int]
    withdrawn: Public[bool]


@dataclass(frozen=True)
class BudgetPage(View):
    unit: Public[str]
    silos: tuple[SiloBudget, ...]
    burn_down: Chart | None
    releases: tuple[ReleaseCost, ...]
    form: PlanForm
    plan: PlanResult | None


def budget_page(sources: Sources, wish: Wish | None = None) -> BudgetPage:
    runs, proofs = sources.runs(), proven_by_silo(sources)
    names = [silo.name for silo in sources.server().silos]
    names += sorted(proofs.keys() - set(names))  # a silo that was removed has spent all the same
    silos = tuple(_budget(sources, name, runs, proofs.get(name, [])) for name in names)
    return BudgetPage(
        unit=unit_of(
            names, [name for name in names if of_labels(cost(proven.receipt.event) for proven in proofs.get(name, []))]
        ),
        silos=silos,
        burn_down=_burn_down(runs),
        releases=tuple(
            ReleaseCost(
                release=one.name,
                recipe=one.entry.recipe,
                epsilon=one.entry.epsilon,
                delta=one.entry.delta,
                silos=len(sources.manifest(one.entry).privacy.epsilon_by_silo),
                withdrawn=one.withdrawn is not None,
            )
            for one in sources.published()
        ),
        form=plan_form(sources, runs, wish),
        plan=None if wish is None else planned(wish),
    )


def _budget(sources: Sources, name: str, runs: list[Run], proofs: list[Proven]) -> SiloBudget:
    declared = next((part for part in _parts(name, runs) if part.total is not None), None)
    delta = next((part.delta for part in _parts(name, runs) if part.delta), None) or _USUAL_DELTA
    reserved = sum(_reserved(run, name) for run in runs)
    total, paid = (declared.total, declared.spent or 0.0) if declared else (None, None)
    return SiloBudget(
        name=name,
        dataset=next((part.dataset for part in _parts(name, runs) if part.dataset), None),
        total=total,
        spent=paid,
        reserved=reserved,
        remaining=None if total is None or paid is None else max(total - paid, 0.0),
        delta=delta,
        declared_at=declared.last_seen if declared else None,
        proven=spent(sources, proofs, delta),
        receipts=len(proofs),
        spent_share=_share(paid, total),
        reserved_share=min(_share(reserved, total), 100.0 - _share(paid, total)),
    )


def _parts(name: str, runs: list[Run]) -> list[Part]:
    return [run.story.parts[name] for run in runs if name in run.story.parts]


def _reserved(run: Run, name: str) -> float:
    """What a run under way was meant to spend, less what it has: the silo's own ledger reserves nothing."""
    part = run.story.parts.get(name)
    if run.story.end is not None or part is None or part.state == "left out":
        return 0.0
    paid = (part.spent or 0.0) - (part.spent_before or 0.0)
    privacy, evaluation = run.config.privacy, run.config.evaluation
    meant = privacy.epsilon * (1 + len(evaluation.baselines)) + (evaluation.silo_epsilon or 0.0)
    return max(meant - paid, 0.0)


def _share(part: float | None, whole: float | None) -> float:
    return 0.0 if not part or not whole else min(100.0 * part / whole, 100.0)


def _burn_down(runs: list[Run]) -> Chart | None:
    """What was left to every silo after each release, as it declared at the time."""
    released = [run for run in reversed(runs) if run.story.release is not None]
    silos = sorted({silo for run in released for silo, part in run.story.parts.items() if part.total is not None})
    if not silos:
        return None
    names = ("before", *(str(run.story.release) for run in released))
    series = []
    for silo in silos:
        points = [(place, _left(run, silo)) for place, run in enumerate(released, start=1)]
        known = [(float(place), left) for place, left in points if left is not None]
        first = next(run.story.parts[silo] for run in released if _left(run, silo) is not None)
        if first.spent_before is not None and first.total is not None:
            known.insert(0, (known[0][0] - 1, max(first.total - first.spent_before, 0.0)))
        series.append(Series(silo, tuple(x for x, _ in known), tuple(y for _, y in known)))
    return Chart("Budget left after each release", "steps", "release", "epsilon left", tuple(series), x_names=names)


def _left(run: Run, silo: str) -> float | None:
    part = run.story.parts.get(silo)
    return None if part is None or part.total is None or part.spent is None else max(part.total - part.spent, 0.0)
