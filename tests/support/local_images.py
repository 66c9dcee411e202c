"""Silos that make images themselves: a query for it, a quick stand-in for synthesis, guards of image records."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from support.guards import silo_tables
from support.toy_images import TOY, toy_backbone, toy_records

from silosynth.client.config import SiloConfig
from silosynth.client.guard.entropy import Entropy, SystemEntropy
from silosynth.client.guard.guard import Guard
from silosynth.client.guard.ledger import Ledger
from silosynth.client.guard.mechanism import Bench, Mechanisms
from silosynth.client.mechanisms import MECHANISMS
from silosynth.common.backbones import encode_backbone
from silosynth.common.config import parse
from silosynth.common.datasets import Records
from silosynth.common.queries import ClassCounts, LocalSynthesis
from silosynth.common.synthesis.local import settings_of
from silosynth.common.synthesis.sps_parameters import SpsParameters

FILE = encode_backbone(toy_backbone())
BACKBONE = hashlib.sha256(FILE).hexdigest()
BRIEF: dict[str, Any] = {
    "statistics": "paper",
    "images_per_class": 2,
    "steps": 3,
    "global_dimension": 6,
    "class_dimension": 5,
    "batch": 6,
}


def local_query(noise_multiplier: float = 8.0, stages: int = 1, seed: int = 0, **parameters: Any) -> LocalSynthesis:
    """For pictures of three kinds, with little work; about `noise_multiplier` for each stage."""
    chosen = SpsParameters(**BRIEF | {"stages": stages} | parameters)
    return LocalSynthesis(
        schema=TOY,
        noise_multiplier=noise_multiplier / stages**0.5 / (1 + 2.0**-40 if stages > 1 else 1),
        backbone=BACKBONE,
        questions=stages,
        images_per_class=chosen.images_per_class,
        labels="hard",
        seed=seed,
        settings=settings_of(chosen),
    )


def spatial_query(noise_multiplier: float = 8.0, stages: int = 2, seed: int = 0) -> LocalSynthesis:
    """As most are asked: statistics that keep the layout, soft labels; the noise multiplier is that of the whole."""
    chosen = SpsParameters(images_per_class=2, steps=2, batch=6, stages=stages)
    return replace(
        local_query(stages=stages, seed=seed),
        noise_multiplier=noise_multiplier,
        labels=chosen.labels,
        settings=settings_of(chosen),
    )


def counting(query: LocalSynthesis, records: Records, bench: Bench) -> npt.NDArray[np.int64]:
    """In place of synthesis: asks for class counts and paints every image of a class in the shade they give."""
    assert len(records) == 0, "whatever makes images must not see records"
    noise_multiplier = round(query.noise_multiplier * query.questions**0.5, 6)  # as `local_query` was told
    inner = ClassCounts(schema=query.schema, noise_multiplier=noise_multiplier)
    counts = sum(bench.ask(inner, {}) for _ in range(query.questions))
    shades = np.repeat(counts % 100, query.layout().size // query.schema.classes - 1)
    return np.concatenate([shades, np.ones(query.schema.classes, dtype=np.int64)])


def image_guard(
    ledger: Ledger,
    mechanisms: Mechanisms | None = None,
    *,
    records: Records | None = None,
    entropy: Entropy | None = None,
    name: str = "toy",
    policy: dict[str, Any] | None = None,
    **settings: Any,
) -> Guard:
    """With `counting` unless told otherwise; the toy backbone lies on its shelf."""
    tables = silo_tables(mechanisms_allowed=["local_synthesis"], backbones=[BACKBONE], **settings)
    tables["silo"]["name"] = name
    tables["policy"] |= policy or {}
    tables["guard"]["device"] = "cpu"
    shelve(ledger.path.parent)
    return Guard(
        parse(SiloConfig, tables, "test"),
        toy_records() if records is None else records,
        ledger,
        {**MECHANISMS, "local_synthesis": counting} if mechanisms is None else mechanisms,
        SystemEntropy() if entropy is None else entropy,
    )


def shelve(folder: Path) -> None:
    """As if a courier had brought the backbone."""
    (folder / "artifacts").mkdir(exist_ok=True)
    (folder / "artifacts" / BACKBONE).write_bytes(FILE)


def of_more(query: LocalSynthesis, images_per_class: int) -> LocalSynthesis:
    return replace(query, images_per_class=images_per_class)
