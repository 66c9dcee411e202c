"""README.md: the dataset card. Its front matter is Hugging Face's, so that `load_dataset(folder)` finds the data."""

from __future__ import annotations

import math
import textwrap
from typing import Any

import yaml

from silosynth.common.publication.accounting import in_words
from silosynth.server.evaluation import Evaluation
from silosynth.server.evaluation.plots import PICTURE
from silosynth.server.releases.entries import Score
from silosynth.server.releases.facts import ReleaseFacts
from silosynth.server.releases.table_file import TABLE

CONTACT_SHEET = "contact-sheet.png"

_LOADING_IMAGES = """\
torchvision.datasets.ImageFolder("data/train")
datasets.load_dataset("imagefolder", data_dir="data/train")  # Hugging Face
"""
_LOADING_TABLES = """\
pandas.read_csv("data/train.csv")
datasets.load_dataset("csv", data_files="data/train.csv")  # Hugging Face
"""
_LOADING = """\
```python
{own}numpy.load("data/train.npz", allow_pickle=False)  # {arrays}, labels
silosynth.load("{name}")  # a torch Dataset, verified first
```
"""
_TEXT = """\
# {name}

{description}

{picture}{summary}

{synthetic}

## Loading

{loading}
{classes}

## What it is worth

{scores}

## What it cost

{guarantee}

{costs}

{proof}

## How it was made

{post_processing}

{models}## What it must not be used for

{limits}

## Is it genuine?

{genuine}
"""
_SYNTHETIC = (
    "No record in here is anybody's: each was computed from noisy statistics of the silos named below, never copied "
    "from a record."
)
_PROOF = (
    "These figures are computed from receipts that the silos' own ledgers signed; receipts and ledger heads are in "
    "`manifest.json`. `privacy-card.yaml` says everything else a data protection officer asks: what is not protected, "
    "mechanisms, composition, whom one has to trust."
)
_LIMITS = (
    "Do not take single synthetic records for facts about people, nor rare details for findings: noise and synthesis "
    "invent both, and what the noise drowned is missing. Intended use: "
)


def dataset_card(facts: ReleaseFacts, *, pictures: bool, soft_labels: bool) -> str:
    return _front_matter(facts, pictures) + _TEXT.format(
        name=facts.naming,
        description=_wrapped(facts.words.description),
        picture=f"![The first images of every class]({CONTACT_SHEET})\n\n" if pictures else "",
        summary=_summary(facts),
        synthetic=_wrapped(_SYNTHETIC),
        loading=_loading(facts, pictures),
        classes=_wrapped(_classes(facts, soft_labels)),
        scores=_scores(facts),
        guarantee=_wrapped(_guarantee(facts)),
        costs=_table(["silo", "epsilon"], [[s, in_words(e)] for s, e in facts.privacy.epsilon_by_silo.items()]),
        proof=_wrapped(_PROOF),
        post_processing=_wrapped(facts.post_processing),
        models=_models(facts),
        limits=_wrapped(_LIMITS + facts.words.intended_use),
        genuine=_wrapped(_genuine(facts)),
    )


def _front_matter(facts: ReleaseFacts, pictures: bool) -> str:
    matter: dict[str, Any] = {
        "pretty_name": str(facts.naming),
        "tags": ["synthetic", "differential-privacy", "federated"],
        "task_categories": ["image-classification" if facts.schema.is_image else "tabular-classification"],
    }
    if facts.words.license is not None:
        matter["license"] = facts.words.license
    if pictures or facts.table_file is not None:
        files = [{"split": "train", "path": "data/train/**/*.png" if pictures else TABLE}]
        matter["configs"] = [{"config_name": "default", "data_files": files}]
    return f"---\n{yaml.safe_dump(matter, sort_keys=False, allow_unicode=True)}---\n\n"


def _summary(facts: ReleaseFacts) -> str:
    """What a reader in a hurry must know, on one screen."""
    shape, words = " x ".join(map(str, facts.schema.shape)), facts.words
    kind = f"images of {shape} pixels" if facts.schema.is_image else f"rows of {shape} values"
    accuracy = None if facts.evaluation is None else facts.evaluation.accuracy
    lines = [
        ["records", f"{facts.records} {kind}, {facts.schema.classes} classes"],
        ["privacy", f"epsilon {in_words(facts.privacy.epsilon_worst)}, delta {facts.privacy.delta:g} for every record"],
        ["accuracy of a model trained on it", _percent(accuracy)],
        ["made", f"{facts.day} by recipe `{facts.run.recipe}` from {len(facts.silos)} silos"],
        ["published by", ", ".join(words.curators or facts.silos)],
        ["licence", words.license or "not stated: ask the publisher"],
    ]
    return _table(["", ""], lines)


def _loading(facts: ReleaseFacts, pictures: bool) -> str:
    arrays = "images uint8 NHWC" if facts.schema.is_image else "features float32 in [-1, 1]"
    own = _LOADING_IMAGES if pictures else "" if facts.schema.is_image else _LOADING_TABLES
    return _LOADING.format(own=own, arrays=arrays, name=facts.naming)


def _classes(facts: ReleaseFacts, soft_labels: bool) -> str:
    soft = " `soft_labels` in the npz file hold one probability per class." if soft_labels else ""
    return f"Classes: {', '.join(facts.classes)}.{soft}"


def _guarantee(facts: ReleaseFacts) -> str:
    """In words that need no mathematics, beside the figures that do."""
    epsilon, delta = facts.privacy.epsilon_worst, facts.privacy.delta
    if epsilon is None:
        return "Nothing: a silo answered without noise, so this dataset protects nobody. Use it with public data only."
    return (
        f"Differential privacy of single records, (epsilon, delta) = ({in_words(epsilon)}, {delta:g}) in the worst "
        "silo: with or without any one record of a silo, everything this run has made public would have come out much "
        "the same. Whoever guesses from it whether a certain record was there, whatever else is known, sees the odds "
        f"change by a factor of at most {_rounded_up(math.exp(epsilon))} (e to the epsilon), save with a probability "
        f"of about delta. Whoever has several records is protected less.{facts.adding_up}"
    )


def _scores(facts: ReleaseFacts) -> str:
    """Accuracy at epsilon: this version's in full, the earlier versions' beside it."""
    evaluation, privacy = facts.evaluation, facts.privacy
    if evaluation is None:
        return "It has not been evaluated: the run named no public test data."
    here = Score(str(facts.naming), privacy.epsilon_worst, privacy.delta, evaluation.accuracy)
    lines = [[s.release, in_words(s.epsilon), f"{s.delta:g}", _percent(s.accuracy)] for s in (*facts.earlier, here)]
    bounds = f"Always answering the largest class gives {_percent(evaluation.floor)}"
    if evaluation.ceiling is not None:
        bounds += f", training on the pooled real records {_percent(evaluation.ceiling)}"
    words = (
        f"Accuracy on public test records of a model ({evaluation.model}) trained on nothing but this data, mean over "
        f"{len(evaluation.seeds)} seeds (spread {_percent(evaluation.accuracy_spread)}). {bounds}. More in "
        f"`evaluation.json`.{_on_silos(evaluation)}"
    )
    picture = f"![accuracy, by class, and calibration]({PICTURE}.png)"
    return f"{_wrapped(words)}\n\n{_table(['release', 'epsilon', 'delta', 'accuracy'], lines)}\n\n{picture}"


def _on_silos(evaluation: Evaluation) -> str:
    score = evaluation.on_silos
    if score is None or score.accuracy_interval is None:
        return ""
    interval = score.accuracy_interval
    return (
        f" On the silos' own records, as {score.silos} of them told with noise and at a cost that is part of this "
        f"release's epsilon, a public backbone with a head trained on this data reaches {_percent(score.accuracy)} "
        f"({_percent(interval.low)} to {_percent(interval.high)} with 95 % confidence)."
    )


def _models(facts: ReleaseFacts) -> str:
    if not facts.models:
        return ""
    listed = ", ".join(f"`models/{name}.safetensors`" for name in facts.models)
    text = f"Made along the way, at no further privacy cost: {listed}."
    if any(name.startswith("statistics-") for name in facts.models):
        text += (
            " Any number of further images can be made of them, at no further privacy cost either: "
            f"`silosynth release synthesize {facts.naming} --images 50000`."
        )
    return _wrapped(text) + "\n\n"


def _genuine(facts: ReleaseFacts) -> str:
    return (
        "`silosynth release verify FOLDER` checks the publisher's signature, every file, every silo's receipt and the "
        f"epsilon. Run configuration {facts.run.config_digest}, seed {facts.run.seed}. {facts.history}"
    )


def _rounded_up(factor: float) -> str:
    """Two digits, never too small."""
    step = 10.0 ** (math.floor(math.log10(factor)) - 1)
    return f"{math.ceil(factor / step) * step:.{0 if factor >= 10 else 1}f}" if factor < 1e6 else f"{factor:.1e}"


def _percent(share: float | None) -> str:
    return "not measured" if share is None else f"{100 * share:.1f} %"


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 118, break_long_words=False, break_on_hyphens=False)


def _table(heading: list[str], lines: list[list[str]]) -> str:
    rows = [heading, ["---"] * len(heading), *([cell.replace("|", "\\|") for cell in line] for line in lines)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
