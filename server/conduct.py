"""Conducting a run: recipe, evaluation, release. Knows nothing of Flower."""

from __future__ import annotations

from pathlib import Path

from silosynth.common.config import parse
from silosynth.common.datasets import load_records
from silosynth.server.assembly import Assembly
from silosynth.server.config import RunConfig
from silosynth.server.evaluation import Evaluation, evaluate, model_for
from silosynth.server.exchange import Exchange
from silosynth.server.journal import Journal
from silosynth.server.recipes import recipe_named
from silosynth.server.recipes.base import Product, Task, drive
from silosynth.server.releases.publisher import Outcome, Publisher


def conduct(config: RunConfig, folder: Path, exchange: Exchange, publisher: Publisher, journal: Journal) -> None:
    """Run the recipe to its end, write the release folder and publish it."""
    recipe = recipe_named(config.recipe)
    parameters = parse(recipe.parameters, config.parameters, f"{folder / 'run.toml'}: parameters")
    schema = config.records.schema_of_records()
    task = Task(schema, config.privacy.epsilon, config.privacy.delta, config.seed)
    assembly = Assembly(exchange, config.federation, journal)
    journal.write("planning", recipe=config.recipe, epsilon=task.epsilon, delta=task.delta, config=config.digest())
    product = drive(recipe.steps(task, parameters), assembly.ask)
    journal.write("synthesized", records=len(product.labels))
    evaluation = _evaluate(config, folder, product, journal)
    outcome = Outcome(config, product, recipe.post_processing, evaluation, assembly.queries, assembly.receipts)
    entry = publisher.publish(folder / "release", outcome)
    journal.write("released_dataset", path=str(folder / "release"), name=str(entry.release), sha256=entry.sha256)


def _evaluate(config: RunConfig, folder: Path, product: Product, journal: Journal) -> Evaluation | None:
    if config.evaluation.test is None:
        return None
    test = load_records(config.evaluation.test, folder)
    journal.write("evaluating", model=model_for(config.evaluation.model, test.schema))
    evaluation = evaluate(product, test, config.evaluation)
    journal.write("evaluated", accuracy=evaluation.accuracy, floor=evaluation.floor, ceiling=evaluation.ceiling)
    return evaluation
