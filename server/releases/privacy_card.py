"""privacy-card.yaml: what a lawyer or a registry asks of a differentially private release, told from its receipts."""

from __future__ import annotations

import math
import re
from collections import Counter

from silosynth.common.publication.accounting import UNIT, in_words
from silosynth.common.queries import Query
from silosynth.server.releases import registry
from silosynth.server.releases.facts import ReleaseFacts

_UNIT = (
    "Add/remove adjacency within one silo: two datasets are adjacent if one is the other plus one record. Every silo's "
    "figure stands by itself. Whoever has several records, or records in several silos, is protected by their "
    "composition, which is weaker."
)
_LABEL_UNIT = (
    "Label differential privacy, a weaker statement than one about records: two datasets are adjacent if one record "
    "has another label. All else about records counts as public, that they are there included; the silos' people have "
    "declared so."
)
_ACTORS = (
    "Silos hold the records; nobody else is trusted with them. Each silo's own guard process clips, sums, adds the "
    "noise and writes the ledger before anything leaves. The server and whoever sees its traffic (assumed curious and "
    "possibly malicious) sees only the noisy releases; the epsilon of a silo holds against it, against the other silos "
    "and against every reader of this dataset. No secure aggregation and no trusted curator is assumed."
)
_FLOATS = (
    "Sums are exact integers on a public grid (records are clipped, then cut towards zero). The noise is an exactly "
    "rounded Gaussian over integers, drawn by inverse distribution function from the operating system's entropy, "
    "undecided draws settled in higher precision: a released integer is post-processing of the continuous Gaussian "
    "mechanism, so floating-point attacks on the noise have nothing to read. A repeated question is answered with the "
    "stored bytes. Nobody but the federation's server can ask; how long an answer takes is not hidden from it."
)
_SECURITY = (
    "Records are opened by the silo's own guard process alone, on the silo's own machine; whatever talks to the server "
    "runs apart from it, as another user or kept out by the kernel. Silos only dial out, over mutual TLS."
)
_JUSTIFICATION = (
    "Epsilon and delta were agreed in the run's configuration and allowed by each silo's own policy and budget, which "
    "its guard enforces; the noise was calibrated to them with Google's dp_accounting (privacy loss distributions). "
    "The figures here are recomputed from the signed receipts by `silosynth release verify`."
)


def privacy_card(facts: ReleaseFacts) -> registry.RegistryRecord:
    basic = _basic(facts)
    return registry.RegistryRecord(
        url_slug=_slug(basic.name, *basic.data_curators, basic.publication_date[:4]),
        deployment=registry.Deployment(
            basic=basic,
            dp_variant=_variant(facts),
            privacy_loss=_privacy_loss(facts),
            deployment_model=_model(facts),
            accounting=_accounting(facts),
            implementation=_implementation(facts),
            administrative=_administrative(facts),
        ),
    )


def _slug(*words: str) -> str:
    """As the registry builds its addresses: name, curators, year."""
    return re.sub("[^a-z0-9]+", "-", " ".join(words).lower()).strip("-")


def _basic(facts: ReleaseFacts) -> registry.Basic:
    words = facts.words
    return registry.Basic(
        name=str(facts.naming),
        data_curators=words.curators or tuple(facts.silos) or ("not stated",),
        intended_use=words.intended_use,
        data_product_type="Synthetic data",
        data_product_region=words.region,
        description=words.description,
        publication_date=facts.day,
        data_product_sector=words.sector,
    )


def _variant(facts: ReleaseFacts) -> registry.Variant:
    shape = " x ".join(map(str, facts.schema.shape))
    kind = "images" if facts.schema.is_image else "table rows"
    public = [
        "the shape of a record, the number of classes and their names",
        "the names of the silos and of their datasets, which of them answered, when, and how many answers each has "
        "given so far (ledger sequence numbers)",
        "the queries with all their parameters, the run's configuration and its seed",
        "to the server only: how long each silo took to answer",
    ]
    if facts.evaluation is not None and facts.evaluation.ceiling is not None:
        public.append("the non-private ceiling in evaluation.json, computed from unprotected records in a simulation")
    return registry.Variant(
        variant_name="Approximate DP",
        data_domain=f"Sets of labelled {kind} of {shape} values in [-1, 1], {facts.schema.classes} classes, per silo.",
        unprotected_quantities=_bullets(public),
    )


def _privacy_loss(facts: ReleaseFacts) -> registry.PrivacyLoss:
    privacy = facts.privacy
    worst = math.inf if privacy.epsilon_worst is None else privacy.epsilon_worst
    by_silo = [f"{silo}: epsilon {in_words(value)}" for silo, value in privacy.epsilon_by_silo.items()]
    return registry.PrivacyLoss(
        privacy_unit="one record of one silo" if privacy.unit == UNIT else privacy.unit,
        privacy_unit_details=_UNIT if privacy.unit == UNIT else _LABEL_UNIT,
        privacy_parameters=registry.Parameters(epsilon=worst, delta=privacy.delta),
        privacy_parameters_details=f"The worst silo's, at delta {privacy.delta:g}.{facts.adding_up} By silo:\n"
        + _bullets(by_silo),
    )


def _model(facts: ReleaseFacts) -> registry.DeploymentModel:
    return registry.DeploymentModel(
        model_name="Federated",
        model_name_details="Each silo is the curator of its own records (central model within the silo) and releases "
        "noisy sums; a server adds the releases of all silos and synthesizes records from the total.",
        actors=_ACTORS,
        release_type="Many releases" if facts.naming.parent else "One release",
        release_type_details=f"{facts.history} Each silo's ledger composes all releases about a dataset, for ever, and "
        "its guard stops at the silo's total budget; budgets are never refreshed.",
        data_source_type="Static",
        data_source_type_details="The records each silo held when it answered.",
        access_type="Non-interactive",
        access_type_details="Readers get files; the silos' records cannot be queried through them.",
    )


def _accounting(facts: ReleaseFacts) -> registry.Accounting:
    return registry.Accounting(
        post_processing=f"{facts.post_processing} Synthesis, evaluation and everything else in this folder see nothing "
        "but the noisy releases and public data.",
        composition="Sequential within a silo: the Gaussian and Poisson-sampled Gaussian events of its receipts are "
        "composed by privacy loss distributions (dp_accounting). Parallel across silos, as far as their records are of "
        "different people.",
    )


def _implementation(facts: ReleaseFacts) -> registry.Implementation:
    return registry.Implementation(
        preprocessing_and_hyperparameter_tuning=f"{facts.words.tuning} Records were scaled by public bounds only. The "
        f"run's configuration (digest {facts.run.config_digest}) was fixed before any silo was asked, and everything "
        f"asked is charged in the receipts. {_earlier_entries(facts)}",
        mechanisms=_mechanisms(facts),
        justification=_JUSTIFICATION,
    )


def _earlier_entries(facts: ReleaseFacts) -> str:
    """What a silo answered before is in its ledger, not in this epsilon: say so where there is any."""
    first: dict[str, int] = {}
    for receipt in facts.receipts:
        first[receipt.silo] = min(first.get(receipt.silo, receipt.sequence), receipt.sequence)
    earlier = [f"{silo} {sequence - 1}" for silo, sequence in sorted(first.items()) if sequence > 1]
    if not earlier:
        return "No silo's ledger had an earlier entry, so no tuning on these ledgers preceded it."
    return (
        f"Ledger entries before those of this release, whatever they served: {', '.join(earlier)}. They are charged to "
        "the silos' total budgets, not to the epsilon stated here."
    )


def _mechanisms(facts: ReleaseFacts) -> str:
    kinds = Counter(_described(query) for query in facts.queries)
    asked = [f"{text}; asked {count} times" if count > 1 else text for text, count in kinds.items()]
    code = f"Made by silosynth {facts.code.silosynth}, source files of SHA-256 {facts.code.source_sha256}."
    return "\n".join(["Asked of each silo:", _bullets(asked), _FLOATS, _SECURITY, code])


def _described(query: Query) -> str:
    plan = query.plan()
    event = ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in vars(plan.event).items())
    remark = f"; {query.remark()}" if query.remark() else ""
    return (
        f"{query.mechanism.replace('_', ' ')}: {type(plan.event).__name__} ({event}) on {plan.layout.size} values of "
        f"L2 sensitivity {plan.sensitivity:.6g} on a grid of {plan.grid:.3g}{remark}"
    )


def _administrative(facts: ReleaseFacts) -> registry.Administrative:
    return registry.Administrative(
        sources="manifest.json in the same folder: queries, signed receipts and ledger heads, digests of all files.",
        notes=f"Written by silosynth from the receipts of run {facts.run.name!r}, recipe {facts.run.recipe}.",
        registry_authors=("silosynth, automatically",),
    )


def _bullets(lines: list[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)
