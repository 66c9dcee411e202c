"""All attacks on one recipe over one set of records, as a report."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from silosynth.common.config import parse
from silosynth.common.datasets import Records
from silosynth.common.queries import Query
from silosynth.deploy.attacks.auditing import audit_in_one_run, audit_repeatedly
from silosynth.deploy.attacks.scoring import auditable
from silosynth.deploy.attacks.shadows import Target, attack
from silosynth.deploy.inprocess import InProcess
from silosynth.deploy.provenance import commit, this_machine
from silosynth.server.attacks.report import AttackReport, Audit
from silosynth.server.config import EvaluationSettings
from silosynth.server.recipes import recipe_named
from silosynth.server.recipes.base import Step, Summed, Task
from silosynth.server.releases.code_version import code_version

Report = Callable[[float], None]


@dataclass(frozen=True)
class Campaign:
    data: str
    recipe: str
    parameters: dict[str, Any]
    epsilon: float
    delta: float
    silos: int
    partition: str
    runs: int
    seed: int
    steps: int  # of the attacked models' training
    most: int  # records that get a coin


def wage(campaign: Campaign, records: Records, public: Records, report: Report) -> AttackReport:
    """Shadow runs first, then audits of what the recipe asks."""
    begun = time.process_time()
    target = _target(campaign, records, public)
    membership = attack(target, campaign.runs, campaign.seed, lambda share: report(0.9 * share))
    audits = _audits(target, campaign.seed) if math.isfinite(campaign.epsilon) else ()
    report(1.0)
    return AttackReport(
        attacked="a model trained on the release, the synthetic records, and each kind of query by itself",
        recipe=campaign.recipe,
        parameters=campaign.parameters,
        epsilon_claimed=campaign.epsilon if math.isfinite(campaign.epsilon) else None,
        delta=campaign.delta,
        data=campaign.data,
        silos=campaign.silos,
        partition=campaign.partition,
        records=len(target.candidates) // 2,
        runs=campaign.runs,
        seeds=(campaign.seed,),
        membership=membership,
        audits=audits,
        cpu_seconds=round(time.process_time() - begun, 2),
        code=code_version(),
        commit=commit(),
        machine=this_machine(),
    )


def _target(campaign: Campaign, records: Records, public: Records) -> Target:
    recipe = recipe_named(campaign.recipe)
    chosen = np.random.default_rng(campaign.seed).permutation(len(records))[: campaign.most]
    return Target(
        recipe=recipe,
        parameters=parse(recipe.parameters, campaign.parameters, f"parameters of {campaign.recipe}"),
        task=Task(records.schema, campaign.epsilon, campaign.delta, campaign.seed),
        candidates=records.take(np.sort(chosen)),
        public=public,
        silos=campaign.silos,
        partition=campaign.partition,
        model=EvaluationSettings(seeds=1, steps=campaign.steps),
    )


def _audits(target: Target, seed: int) -> tuple[Audit, ...]:
    """One run tells what the recipe asks; the first question of each kind is audited by itself, with its own claim."""
    asked: dict[str, Query] = {}
    federation = InProcess([])

    def listen(shards: list[Records]) -> Callable[[Step], Summed]:
        answering = InProcess(shards, artifacts=federation.artifacts)

        def ask(step: Any) -> Summed:
            if auditable(step.query):
                asked.setdefault(step.query.mechanism, step.query)
            return answering.ask(step)

        return ask

    replace(target, federation=listen).release(np.ones(len(target.candidates), dtype=np.bool_))
    audits = []
    for query in asked.values():
        audits.append(audit_in_one_run(query, federation.answer, federation.exact_answer, seed))
        audits.append(audit_repeatedly(query, federation.answer, federation.exact_answer, seed))
    return tuple(audits)
