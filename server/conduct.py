"""Conducting a run: recipe, evaluation, release. Knows nothing of Flower."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from silosynth.common.config import parse
from silosynth.common.datasets import Records, load_records
from silosynth.common.errors import SilosynthError
from silosynth.server.assembly import Assembly
from silosynth.server.config import RunConfig
from silosynth.server.continual import Parent, extended, load_parent
from silosynth.server.desk import Desk
from silosynth.server.evaluation import Evaluation, SiloScoring, evaluate, model_for
from silosynth.server.evaluation.baselines import measure
from silosynth.server.exchange import Exchange
from silosynth.server.journal import Journal
from silosynth.server.kept_sums import KeptSums
from silosynth.server.recipes import recipe_named
from silosynth.server.recipes.base import Product, Task, drive
from silosynth.server.recipes.workplace import Workplace
from silosynth.server.releases.folder import class_names, has_pictures
from silosynth.server.releases.publisher import Outcome, Publisher


def conduct(
    config: RunConfig, folder: Path, work: Path, exchange: Exchange, publisher: Publisher, journal: Journal
) -> None:
    """Run the recipe to its end, write the release folder and publish it.

    What the same configuration left unfinished in `work`, the folder of all runs' checkpoints, is taken up.
    """
    recipe = recipe_named(config.recipe)
    parameters = parse(recipe.parameters, config.parameters, f"{folder / 'run.toml'}: parameters")
    schema = config.records.schema_of_records()
    pictured = class_names(config.records) if has_pictures(schema) else ()
    unfinished = work / config.digest()
    desk = Desk(unfinished, folder=folder, journal=journal, classes=pictured)
    task = Task(schema, config.privacy.epsilon, config.privacy.delta, config.seed, desk)
    parent = None if config.extends is None else load_parent(publisher.store, config)
    scoring = _scoring(config)
    counted, kept = parent.entries if parent else frozenset[bytes](), KeptSums(unfinished / "sums")
    assembly = Assembly(exchange, config.federation, journal, counted, kept)
    journal.write("planning", recipe=config.recipe, epsilon=task.epsilon, delta=task.delta, config=config.digest())
    steps = extended(recipe, task, parameters, parent) if parent else recipe.steps(task, parameters)
    product = drive(steps, assembly.ask)
    journal.write("synthesized", records=len(product.labels))
    test = None if config.evaluation.test is None else load_records(config.evaluation.test, folder)
    evaluation = None if test is None else _evaluate(config, product, test, journal)
    outcome = Outcome(config, product, recipe.post_processing, evaluation, assembly.queries, assembly.receipts)
    if test is not None and config.evaluation.baselines:
        rivals = Assembly(exchange, config.federation, journal, kept=KeptSums(unfinished / "sums of baselines"))
        outcome = _with_baselines(outcome, replace(task, workplace=Workplace()), test, rivals, journal)
    if scoring is not None:
        jury = Assembly(exchange, config.federation.model_copy(update={"quorum": 1}), journal)
        outcome = _with_score(outcome, scoring, jury, journal)
    entry = publisher.publish(folder / "release", _with_parent(outcome, parent) if parent else outcome)
    exchange.announce()
    journal.write("released_dataset", path=str(folder / "release"), name=str(entry.release), sha256=entry.sha256)
    shutil.rmtree(unfinished, ignore_errors=True)


def _with_parent(outcome: Outcome, parent: Parent) -> Outcome:
    """What extends a release also shows what that one was made of, so it has cost that, too."""
    return replace(
        outcome,
        post_processing=f"{outcome.post_processing} It extends {parent.release}: what that was made of is among the "
        "queries and receipts told here.",
        queries=[*parent.queries, *outcome.queries],
        receipts=[*parent.receipts, *outcome.receipts],
    )


def _scoring(config: RunConfig) -> SiloScoring | None:
    settings = config.evaluation
    if settings.silo_epsilon is None:
        return None
    return SiloScoring(config.records.schema_of_records(), settings, settings.silo_epsilon, config.privacy.delta)


def _with_score(outcome: Outcome, scoring: SiloScoring, jury: Assembly, journal: Journal) -> Outcome:
    """What silos say about the records, and paid for saying it. The release is as good if none of them allows it."""
    assert outcome.evaluation is not None, "run.toml names public records where it asks for scores"
    asked = scoring.ask(outcome.product)
    try:
        score = scoring.read(asked, jury.ask(asked))
    except SilosynthError as error:
        journal.write("not_scored", error=type(error).__name__, message=str(error))
        return outcome
    journal.write("scored", accuracy=score.accuracy, silos=score.silos)
    return replace(
        outcome,
        evaluation=outcome.evaluation.model_copy(update={"on_silos": score}),
        post_processing=f"{outcome.post_processing} When the records were made, silos were asked for scores, to judge "
        f"them: of its epsilon each silo that answered spent {score.epsilon:g} on this alone, and no record depends on "
        "it.",
        queries=[*outcome.queries, *jury.queries],
        receipts=[*outcome.receipts, *jury.receipts],
    )


def _with_baselines(outcome: Outcome, task: Task, test: Records, rivals: Assembly, journal: Journal) -> Outcome:
    """What other ways make of the same silos. One that no silo allows is left out; what it has cost so far is told."""
    assert outcome.evaluation is not None, "there are test records"
    settings, found = outcome.config.evaluation, {}
    for name in settings.baselines:
        try:
            found[name] = measure(name, task, test, settings, rivals.ask)
        except SilosynthError as error:
            journal.write("not_compared", baseline=name, error=type(error).__name__, message=str(error))
        else:
            journal.write("compared", baseline=name, accuracy=found[name].accuracy)
    return replace(
        outcome,
        evaluation=outcome.evaluation.model_copy(update={"baselines": found}),
        post_processing=f"{outcome.post_processing} Silos were then asked for {', '.join(settings.baselines)}, to "
        "compare with: that is part of their epsilon, and no record depends on it.",
        queries=[*outcome.queries, *rivals.queries],
        receipts=[*outcome.receipts, *rivals.receipts],
    )


def _evaluate(config: RunConfig, product: Product, test: Records, journal: Journal) -> Evaluation:
    journal.write("evaluating", model=model_for(config.evaluation.model, test.schema))
    evaluation = evaluate(product, test, config.evaluation)
    journal.write("evaluated", accuracy=evaluation.accuracy, floor=evaluation.floor, ceiling=evaluation.ceiling)
    return evaluation
