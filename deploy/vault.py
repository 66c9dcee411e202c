"""What the silo's people see of their guard, as plain documents: the chain, the budget, the requests, the terms."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from silosynth.client.guard.decisions import Request
from silosynth.client.guard.inspection import Inspection
from silosynth.client.guard.terms import Terms, differences, stricter
from silosynth.common import accounting
from silosynth.common.errors import ConfigError
from silosynth.common.events import Charge, Event, PostProcessing, SampledGaussian, cost, of_labels
from silosynth.common.queries import Mixtures, decode
from silosynth.common.shipped import backbone_name

Document = dict[str, Any]
_SHORTEST_PREFIX = 8
_NOISE_MULTIPLIERS = (2.0, 5.0, 10.0, 20.0)
_ALL_RECORDS: dict[str, Callable[[float], Event]] = {"all records": SampledGaussian}
_SAMPLED: dict[str, Callable[[float], Event]] = {
    "20 samples of 5 % of the records": lambda noise: SampledGaussian(noise, 0.05, 20)
}


def operating_user() -> str:
    """Who decides: the user the operating system vouches for, not the one the environment names."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"


def audit(vault: Inspection) -> Document:
    entries = [
        {
            "sequence": receipt.sequence,
            "created": receipt.created,
            "dataset": receipt.dataset,
            "query": receipt.query_digest.hex(),
            "event": _figures(cost(receipt.event)),
            "made_of": _made_of(receipt.event),
            "hash": receipt.entry_hash.hex(),
        }
        for receipt in vault.receipts
    ]
    acts = [asdict(act) for act in vault.decisions.acts()]
    key = vault.identity.public_key.hex()
    return {"silo": vault.config.silo.name, "public_key": key, "entries": entries, "decisions": acts}


def _figures(event: Event) -> Document:
    protected = "labels" if of_labels([event]) else "records"
    return {"sampling_probability": event.sampling_probability, "protected": protected} | asdict(event)


def _made_of(charge: Charge) -> list[str]:
    """The entries, by hash, that were charged for what this one holds; none for one that was charged itself."""
    return [source.hex() for source in charge.sources] if isinstance(charge, PostProcessing) else []


def budget(vault: Inspection) -> Document:
    """What was spent, what remains, and what one more release of each allowed kind would cost."""
    terms, spent = vault.terms(), vault.spent()
    total, delta = terms.budget.epsilon, terms.budget.delta
    already = accounting.epsilon(spent, delta)
    return {
        "dataset": vault.dataset,
        "epsilon_total": total,
        "delta": delta,
        "epsilon_spent": already,
        "epsilon_remaining": max(0.0, total - already),
        "releases": sum(receipt.dataset == vault.dataset for receipt in vault.receipts),
        "period": _period(vault, terms),
        "one_more_release": [
            {"mechanism": name, "of": kind, "noise_multiplier": noise} | added_cost(vault, event_at(noise))
            for name in terms.policy.mechanisms
            for kind, event_at in _kinds(name).items()
            for noise in _NOISE_MULTIPLIERS
        ],
    }


def _kinds(mechanism: str) -> dict[str, Callable[[float], Event]]:
    return _ALL_RECORDS | _SAMPLED if mechanism == Mixtures.mechanism else _ALL_RECORDS


def _period(vault: Inspection, terms: Terms) -> Document | None:
    limit = terms.policy.max_epsilon_per_period
    if limit is None:
        return None
    spent = accounting.epsilon(vault.spent_in_period(), terms.budget.delta)
    return {"days": terms.policy.period_days, "epsilon_limit": limit, "epsilon_spent": spent}


def added_cost(vault: Inspection, event: Event) -> Document:
    """What releasing `event` would add to what was spent, and whether that fits the budget."""
    terms, spent = vault.terms().budget, vault.spent()
    already = accounting.epsilon(spent, terms.delta)
    after = accounting.epsilon([*spent, event], terms.delta)
    return {"epsilon_added": after - already, "epsilon_after": after, "fits": after <= terms.epsilon}


def requests(vault: Inspection) -> list[Document]:
    """Every request that ever waited for consent, oldest first."""
    answered = {receipt.query_digest.hex() for receipt in vault.receipts if receipt.dataset == vault.dataset}
    return [describe(vault, request, request.digest in answered) for request in vault.decisions.requests(vault.dataset)]


def describe(vault: Inspection, request: Request, answered: bool = False) -> Document:
    """A request in words, with all that its decision needs."""
    query, terms = decode(request.query), vault.terms().budget
    act = vault.decisions.verdict(request.dataset, request.digest)
    parameters = {name: getattr(query, name) for name in ("noise_multiplier", *query.parameters())}
    return {
        "digest": request.digest,
        "dataset": request.dataset,
        "asked": request.asked,
        "state": "answered" if answered else "waiting" if act is None else act.verdict,
        "expires": act.expires if act else "",
        "mechanism": query.mechanism,
        "parameters": parameters,
        "backbones": [backbone_name(backbone) for backbone in query.backbones()],
        "remark": query.remark(),
        "values": query.layout().size,
        "epsilon_alone": accounting.epsilon([query.event()], terms.delta),
        "epsilon_spent": accounting.epsilon(vault.spent(), terms.delta),
        "epsilon_total": terms.epsilon,
    } | added_cost(vault, query.event())


def find_request(vault: Inspection, prefix: str) -> Request:
    """The request whose digest begins so."""
    if len(prefix) < _SHORTEST_PREFIX:
        raise ConfigError(f"{prefix!r} is too short: give at least {_SHORTEST_PREFIX} characters of the digest")
    found = [
        request for request in vault.decisions.requests(vault.dataset) if request.digest.startswith(prefix.lower())
    ]
    if len(found) != 1:
        problem = "several requests begin" if found else "no request begins"
        raise ConfigError(f"{problem} with {prefix}: see `silosynth silo requests`")
    return found[0]


def adoption(vault: Inspection) -> Document:
    """What adopting silo.toml would change: `looser` needs a person's word, the guard does `stricter` by itself."""
    wanted, adopted = Terms.of(vault.config), vault.decisions.terms(vault.dataset)
    if adopted is None:
        missing = any(receipt.dataset == vault.dataset for receipt in vault.receipts)
        looser = ["the terms of earlier releases are missing: those of silo.toml take their place"] if missing else []
        return {"dataset": vault.dataset, "looser": looser, "stricter": []}
    both = stricter(adopted, wanted)
    return {"dataset": vault.dataset, "looser": differences(both, wanted), "stricter": differences(adopted, both)}
