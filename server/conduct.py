"""Conducting a run: recipe, evaluation, release. Knows nothing of Flower."""

from __future__ import annotations

import shutil
from pathlib import Path

from silosynth.common.config import parse
from silosynth.common.datasets import load_records
from silosynth.server.assembly import Assembly
from silosynth.server.config import RunConfig
from silosynth.server.desk import Desk
from silosynth.server.evaluation import Evaluation, evaluate, model_for
from silosynth.server.exchange import Exchange
from silosynth.server.journal import Journal
from silosynth.server.recipes import recipe_named
from silosynth.server.recipes.base import Product, Task, drive
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
    desk = Desk(work / config.digest(), folder=folder, journal=journal, classes=pictured)
    task = Task(schema, config.privacy.epsilon, config.privacy.delta, config.seed, desk)
    assembly = Assembly(exchange, config.federation, journal)
    journal.write("planning", recipe=config.recipe, epsilon=task.epsilon, delta=task.delta, config=config.digest())
    product = drive(recipe.steps(task, parameters), assembly.ask)
    journal.write("synthesized", records=len(product.labels))
    evaluation = _evaluate(config, folder, product, journal)
    outcome = Outcome(config, product, recipe.post_processing, evaluation, assembly.queries, assembly.receipts)
    entry = publisher.publish(folder / "release", outcome)
    exchange.announce()
    journal.write("released_dataset", path=str(folder / "release"), name=str(entry.release), sha256=entry.sha256)
    shutil.rmtree(work / config.digest(), ignore_errors=True)


def _evaluate(config: RunConfig, folder: Path, product: Product, journal: Journal) -> Evaluation | None:
    if config.evaluation.test is None:
        return None
    test = load_records(config.evaluation.test, folder)
    journal.write("evaluating", model=model_for(config.evaluation.model, test.schema))
    evaluation = evaluate(product, test, config.evaluation)
    journal.write("evaluated", accuracy=evaluation.accuracy, floor=evaluation.floor, ceiling=evaluation.ceiling)
    return evaluation
