"""All attacks on one recipe over one set of records, as a report."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from silosynth.common import accounting
from silosynth.common.config import parse
from silosynth.common.datasets import Records
from silosynth.common.events import Event
from silosynth.common.queries import Query
from silosynth.deploy.attacks.auditing import audit_in_one_run, audit_repeatedly
from silosynth.deploy.attacks.scoring import auditable
from silosynth.deploy.attacks.shadows import Target, attack
from silosynth.deploy.inprocess import InProcess
from silosynth.deploy.provenance import commit, this_machine
from silosynth.server.attacks.claims import Claim
from silosynth.server.attacks.report import AttackReport, Audit
from silosynth.server.config import EvaluationSettings
from silosynth.server.recipes import recipe_named
from silosynth.server.recipes.base import Ask, Step, Summed, Task
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
    """One run tells what is asked, shadow runs who took part, audits what each kind of question really costs."""
    begun = time.process_time()
    target, promised = _target(campaign, records, public), math.isfinite(campaign.epsilon)
    heard = Heard.of(target) if promised else Heard(InProcess([]), [])  # nothing is claimed that could be audited
    claim = Claim.of(campaign.epsilon, campaign.delta, heard.events) if promised else None
    membership = attack(target, campaign.runs, campaign.seed, claim, lambda share: report(0.9 * share))
    audits = heard.audits(campaign.delta, campaign.seed) if promised else ()
    report(1.0)
    return AttackReport(
        attacked=_words(heard.not_audited),
        recipe=campaign.recipe,
        parameters=campaign.parameters,
        epsilon_claimed=campaign.epsilon if promised else None,
        delta=campaign.delta,
        claims=() if claim is None else claim.pairs,
        data=campaign.data,
        silos=campaign.silos,
        partition=campaign.partition,
        records=len(target.candidates) // 2,
        runs=campaign.runs,
        seeds=(campaign.seed,),
        membership=membership,
        audits=audits,
        not_audited=heard.not_audited,
        cpu_seconds=round(time.process_time() - begun, 2),
        code=code_version(),
        commit=commit(),
        machine=this_machine(),
    )


def _words(not_audited: tuple[str, ...]) -> str:
    audited = "by itself, of each kind of query, the one that costs most"
    others = f" (but for {', '.join(not_audited)}, which cannot be audited alone)" if not_audited else ""
    return f"a model trained on the release, the synthetic records, and, {audited}{others}"


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


@dataclass
class Heard:
    """What one run of a recipe asks every silo, and a copy of the mechanisms to answer it again."""

    copy: InProcess
    queries: list[Query]

    @classmethod
    def of(cls, target: Target) -> Heard:
        heard = cls(InProcess([]), [])
        replace(target, federation=heard._listen).release(np.ones(len(target.candidates), dtype=np.bool_))
        return heard

    def _listen(self, shards: list[Records]) -> Callable[[Step], Summed]:
        answering = InProcess(shards, artifacts=self.copy.artifacts)

        def ask(step: Step) -> Summed:
            self.queries.append(Ask.of(step).query)
            return answering.ask(step)

        return ask

    @property
    def events(self) -> list[Event]:
        return [query.event() for query in self.queries]

    @property
    def not_audited(self) -> tuple[str, ...]:
        return tuple(sorted({query.mechanism for query in self.queries if not auditable(query)}))

    def dearest(self, delta: float) -> list[Query]:
        """Of each kind of question that can be audited, the one that costs most."""
        one_of_each = {(query.mechanism, query.event()): query for query in self.queries if auditable(query)}
        by_cost = sorted(one_of_each.values(), key=lambda query: accounting.epsilon([query.event()], delta))
        return list({query.mechanism: query for query in by_cost}.values())

    def audits(self, delta: float, seed: int) -> tuple[Audit, ...]:
        """Each by itself, with its own claim."""
        answers = self.copy.answer, self.copy.exact_answer
        methods = (audit_in_one_run, audit_repeatedly)
        return tuple(audit(query, *answers, seed) for query in self.dearest(delta) for audit in methods)
