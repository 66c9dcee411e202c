"""README.md: the dataset card. Its front matter is Hugging Face's, so that `load_dataset(folder)` finds the images."""

from __future__ import annotations

from typing import Any

import yaml

from silosynth.server.releases.facts import ReleaseFacts, Score, in_words

CONTACT_SHEET = "contact-sheet.png"

_LOADING_IMAGES = """\
```python
torchvision.datasets.ImageFolder("data/train")
datasets.load_dataset("imagefolder", data_dir="data/train")
numpy.load("data/train.npz", allow_pickle=False)  # images uint8 NHWC, labels
silosynth.load("{name}")  # a torch Dataset, verified first
```
"""
_LOADING_ARRAYS = """\
```python
numpy.load("data/train.npz", allow_pickle=False)  # {arrays}, labels
silosynth.load("{name}")  # a torch Dataset, verified first
```
"""
_TEXT = """\
# {name}

{description}

{picture}
{records} synthetic records of {shape} values, {classes} classes, made by the recipe `{recipe}` on {day}. No record in
here is anybody's: each was computed from noisy statistics of the silos named below.

## Loading

{loading}
{soft_labels}Class names: {class_names}.

## How much it is worth

{scores}

## What it cost

Each silo is protected at record level (one record added or removed) by ({worst}, {delta:g})-differential privacy or
better. The figures follow from receipts that the silos signed (`manifest.json`); `privacy-card.yaml` says the rest.

{costs}

## How it was made

{post_processing}

{models}## What it must not be used for

Do not take single synthetic records for facts about people, nor rare details for findings: noise and synthesis invent
both. What the noise drowned is missing. Intended use: {intended_use}

## Is it genuine?

`silosynth release verify FOLDER` checks the publisher's signature, every file, every silo's receipt and the epsilon.
Run configuration {config_digest}, seed {seed}. {history}
"""


def dataset_card(facts: ReleaseFacts, *, pictures: bool, soft_labels: bool) -> str:
    words, privacy, naming = facts.words, facts.privacy, facts.naming
    soft = "`soft_labels` in the npz file hold one probability per class. " if soft_labels else ""
    return _front_matter(facts, pictures) + _TEXT.format(
        name=naming,
        description=words.description,
        picture=f"![The first images of every class]({CONTACT_SHEET})\n" if pictures else "",
        records=facts.records,
        shape=" x ".join(map(str, facts.schema.shape)),
        classes=facts.schema.classes,
        recipe=facts.run.recipe,
        day=facts.day,
        loading=_loading(facts, pictures),
        soft_labels=soft,
        class_names=", ".join(facts.classes),
        scores=_scores(facts),
        worst=in_words(privacy.epsilon_worst),
        delta=privacy.delta,
        costs=_table(["silo", "epsilon"], [[s, in_words(e)] for s, e in privacy.epsilon_by_silo.items()]),
        post_processing=facts.post_processing,
        models=_models(facts),
        intended_use=words.intended_use,
        config_digest=facts.run.config_digest,
        seed=facts.run.seed,
        history=f"It follows version {naming.parent.version}." if naming.parent else "It is the first of its name.",
    )


def _front_matter(facts: ReleaseFacts, pictures: bool) -> str:
    matter: dict[str, Any] = {
        "pretty_name": str(facts.naming),
        "tags": ["synthetic", "differential-privacy", "federated"],
        "task_categories": ["image-classification" if facts.schema.is_image else "tabular-classification"],
    }
    if facts.words.license is not None:
        matter["license"] = facts.words.license
    if pictures:
        files = [{"split": "train", "path": "data/train/**/*.png"}]
        matter["configs"] = [{"config_name": "default", "data_files": files}]
    return f"---\n{yaml.safe_dump(matter, sort_keys=False, allow_unicode=True)}---\n\n"


def _loading(facts: ReleaseFacts, pictures: bool) -> str:
    if pictures:
        return _LOADING_IMAGES.format(name=facts.naming)
    arrays = "images uint8 NHWC" if facts.schema.is_image else "features float32 in [-1, 1]"
    return _LOADING_ARRAYS.format(name=facts.naming, arrays=arrays)


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
    return (
        f"Accuracy on public test records of a model ({evaluation.model}) trained on nothing but this data, mean over "
        f"{len(evaluation.seeds)} seeds (spread {_percent(evaluation.accuracy_spread)}); more in `evaluation.json`.\n\n"
        f"{_table(['release', 'epsilon', 'delta', 'accuracy'], lines)}\n\n{bounds}."
    )


def _models(facts: ReleaseFacts) -> str:
    if not facts.models:
        return ""
    listed = ", ".join(f"`models/{name}.safetensors`" for name in facts.models)
    return f"Made along the way, at no further privacy cost: {listed}.\n\n"


def _percent(share: float | None) -> str:
    return "not measured" if share is None else f"{100 * share:.1f} %"


def _table(heading: list[str], lines: list[list[str]]) -> str:
    rows = [heading, ["---"] * len(heading), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
