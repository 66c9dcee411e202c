"""attacks.json: written, read back, described by a schema."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from silosynth.common.errors import VerificationFailed
from silosynth.deploy.attacks.results import as_tables
from silosynth.server.attacks.report import AttackReport, Audit, Machine, Membership, Power, Rate, RocPoint
from silosynth.server.releases.code_version import code_version


def report(**changes: object) -> AttackReport:
    document = {
        "attacked": "a model trained on the release",
        "recipe": "prototypes",
        "parameters": {},
        "epsilon_claimed": 1.0,
        "delta": 1e-5,
        "data": "digits",
        "silos": 5,
        "partition": "iid",
        "records": 700,
        "runs": 16,
        "seeds": (0,),
        "membership": (membership(flagged=False),),
        "audits": (audit(flagged=False),),
        "cpu_seconds": 1.5,
        "code": code_version(),
        "commit": None,
        "machine": Machine(processor="x86_64", cores=2, python="3.11", torch="2.6"),
    }
    return AttackReport.model_validate({**document, **changes})


def membership(*, flagged: bool) -> Membership:
    return Membership(
        attack="lira",
        method="shadow runs",
        members=2000,
        outsiders=2000,
        area=0.5,
        area_interval=(0.48, 0.52),
        tpr_at_0_1_percent=Rate(value=0.001, low=0.0, high=0.003, allowed=0.003),
        tpr_at_1_percent=None,
        roc=(RocPoint(false_positive_rate=0, true_positive_rate=0),),
        flagged=flagged,
    )


def audit(*, flagged: bool) -> Audit:
    return Audit(
        mechanism="mixtures",
        method="one run",
        runs=1,
        canaries=640,
        guesses=640,
        correct=350,
        confidence=0.95,
        delta=1e-5,
        epsilon_claimed=1.0,
        epsilon_lower=0.1,
        flagged=flagged,
        power=Power(noise_divided_by=3, share=0.95, audits=20),
    )


def test_json_and_back() -> None:
    document = json.loads(report().model_dump_json())
    assert AttackReport.model_validate(document) == report()
    assert set(document) == set(AttackReport.model_json_schema()["properties"])


def test_unknown_keys_are_refused() -> None:
    with pytest.raises(ValidationError):
        report(unheard_of=1)


def test_one_attack_that_succeeds_flags_the_whole() -> None:
    assert not report().flagged
    assert report(membership=(membership(flagged=True),)).flagged
    assert report(audits=(audit(flagged=True),)).flagged


def test_the_relation_is_told() -> None:
    assert report().relation == "one record of one silo added or removed"


def test_a_refuted_claim_ends_a_script() -> None:
    report().verdict()
    with pytest.raises(VerificationFailed, match="prototypes"):
        report(audits=(audit(flagged=True),)).verdict()


def test_what_was_not_audited_is_told() -> None:
    _, audits = as_tables(report(not_audited=("teacher_answers",)))
    assert "teacher_answers" in str(audits.caption)
    assert as_tables(report())[1].caption is None
