"""What FedDPSD is worth: accuracies of its student, its teachers and what it is compared with, as rows of JSON.

    python tests/benchmarks/feddpsd_accuracy.py --data FASHION_MNIST_FOLDER --out RESULTS --seeds 0 1 2

A row that is there already is not made again, and what the public network saw of the records is kept, so a stopped run
goes on where it was. `--held-out` trains on five sixths of the training records and tests on the others: settings are
chosen with that alone. Records are dealt to silos by Dirichlet's proportions. All models are of one kind: a classifier
of a public network's features. Some are no competitors but say what is possible: `teachers` (epsilon infinite; the mean
of their accuracies, and the accuracy of their mean answer) and `real images` (a student who is told the teachers' mean
answer about the training images themselves, which no server has).
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product as combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1]))
from support.accuracy_rows import draw, make_missing, split_records
from support.entropies import SeededEntropy

from silosynth.client.guard.entropy import coin_flips
from silosynth.client.guard.mechanism import Bench
from silosynth.client.guard.noise import rounded_gaussian
from silosynth.client.mechanisms.private_training import Descent
from silosynth.client.mechanisms.record_gradients import clipped_sum, per_record_gradients
from silosynth.client.mechanisms.teacher_training import train_teachers
from silosynth.common.accounting import calibrate
from silosynth.common.datasets import Records
from silosynth.common.events import SampledGaussian
from silosynth.common.networks.weights import flat_weights, with_weights
from silosynth.common.partition import partition
from silosynth.common.queries.base import fine_grid
from silosynth.common.teaching.views import View, draw_classifier
from silosynth.deploy.inprocess import InProcess
from silosynth.server.config import EvaluationSettings
from silosynth.server.evaluation import evaluate
from silosynth.server.recipes import recipe_named
from silosynth.server.recipes.base import Task, drive
from silosynth.server.recipes.feddpsd import FedDpsd
from silosynth.server.recipes.teacher_parameters import TeacherParameters
from silosynth.server.recipes.teacher_questions import Questions
from silosynth.server.synthesis.committee import Committee
from silosynth.server.synthesis.pupil import Pupil

DELTA = 1e-5
RECIPES: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("feddpsd", {"teachers": "plain"}),
    "plain, few questions": ("feddpsd", {"teachers": "plain", "rounds": 1, "inputs": 128}),
    "classes, few questions": ("feddpsd", {"teachers": "plain", "answers": "classes", "rounds": 2, "inputs": 128}),
    "sub-teachers": ("feddpsd", {"teachers": "sub-teachers", "sub_teachers": 250, "rounds": 1, "inputs": 4096}),
    "dp-sgd": ("feddpsd", {"teachers": "dp-sgd"}),
    "label-dp": ("feddpsd", {"teachers": "label-dp"}),
    "ridge": ("ridge", {}),
    "prototypes": ("prototypes", {}),
}
FEDAVG_ROUNDS, FEDAVG_STEPS = 20, 50


@dataclass(frozen=True)
class Row:
    data: str
    variant: str
    epsilon: float
    silos: int
    alpha: float
    network: str
    seed: int
    held_out: bool


@dataclass(frozen=True)
class Scene:
    """What every variant is told."""

    row: Row
    shards: list[Records]
    test: Records

    @property
    def task(self) -> Task:
        return Task(self.test.schema, self.row.epsilon, DELTA, self.row.seed)

    @property
    def questions(self) -> Questions:
        return Questions.of(self.task, TeacherParameters(teachers="plain", network=self.row.network))

    @property
    def view(self) -> View:
        return self.questions.view(self.row.network)

    def classifier(self) -> torch.nn.Module:
        return draw_classifier(self.row.network, self.test.schema, self.view.features(), self.row.seed)

    def probabilities(self, weights: Tensor, records: Records) -> Tensor:
        with torch.no_grad():
            return with_weights(self.classifier(), weights.clone())(self.view.of_records(records.flat())).softmax(1)

    def accuracy(self, probabilities: Tensor) -> float:
        return round(float((probabilities.argmax(1).numpy() == self.test.labels).mean()), 4)


def main() -> None:
    options = _options()
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    _keep_what_networks_see(options.out / "seen")
    wanted = combinations(options.seeds, options.epsilons, options.variants)
    rows = (
        Row(options.data.name, variant, epsilon, options.silos, options.alpha, options.network, seed, options.held_out)
        for seed, epsilon, variant in wanted
        if variant not in OTHERS or variant == "dp-fedavg" or np.isinf(epsilon)
    )
    make_missing(rows, lambda row: made(row, options), options.out / "rows.jsonl")


def made(row: Row, options: argparse.Namespace) -> dict[str, Any]:
    train, test = split_records(options.data, options.classes, row.held_out)
    dealt = partition(f"dirichlet:{row.alpha}", train.labels, row.silos, 0)
    scene = Scene(row, [train.take(part) for part in dealt], test)
    begun = time.process_time()
    found = OTHERS[row.variant](scene) if row.variant in OTHERS else _by_recipe(scene, options)
    return found | {"cpu_seconds": round(time.process_time() - begun)}


def _by_recipe(scene: Scene, options: argparse.Namespace) -> dict[str, Any]:
    row = scene.row
    name, chosen = RECIPES[row.variant]
    recipe = recipe_named(name)
    chosen = chosen | ({"network": row.network} if isinstance(recipe, FedDpsd) else {})
    federation = InProcess(scene.shards, SeededEntropy(row.seed))
    product = drive(recipe.steps(scene.task, recipe.parameters(**chosen)), federation.ask)
    assert product.classifier is not None
    right = product.classifier(scene.test.flat()) == scene.test.labels
    found = {"student": round(float(right.mean()), 4), "parameters": chosen}
    draw(product, scene.test, options.out / f"{row.data}-{row.variant}-{row.epsilon}-{row.seed}.png")
    if options.train_models:
        evaluation = evaluate(product, scene.test, EvaluationSettings(protocol="quick", seeds=1))
        found["model_trained_on_synthetic_records"] = round(evaluation.accuracy, 4)
    return found


def _teachers(scene: Scene) -> list[Tensor]:
    query = scene.questions.example()
    backbone = scene.questions.about(torch.zeros(2, *_inputs_shape(scene)), torch.full((2, 10), 0.1)).artifacts
    named = next((digest for digest, content in backbone.items() if len(content) > 1 << 16), "")
    query = type(query)(**vars(query) | {"backbone": named if query.backbone else ""})
    return [
        train_teachers(query, shard, Bench(SeededEntropy(), lambda share: None, backbone.__getitem__))[0]
        for shard in scene.shards
    ]


def _inputs_shape(scene: Scene) -> tuple[int, ...]:
    height, width, channels = scene.test.schema.shape
    return channels, height, width


def teachers(scene: Scene) -> dict[str, Any]:
    each = [scene.probabilities(weights, scene.test) for weights in _teachers(scene)]
    alone = [scene.accuracy(probabilities) for probabilities in each]
    mean = torch.stack(each).mean(0)
    return {"mean_teacher": round(float(np.mean(alone)), 4), "teachers": alone, "mean_answer": scene.accuracy(mean)}


def real_images(scene: Scene) -> dict[str, Any]:
    pool = Records(*(np.concatenate(parts) for parts in _columns(scene.shards)), scene.test.schema)
    each = [scene.probabilities(weights, pool) for weights in _teachers(scene)]
    members = TeacherParameters().members
    student = Committee(scene.row.network, members, pool.schema, scene.view.features(), scene.row.seed)
    pupil = Pupil(scene.view, student, scene.row.seed)
    pupil.remember_seen(scene.view.of_records(pool.flat()), torch.stack(each).mean(0))
    pupil.study(6000)
    with torch.no_grad():
        return {"student": scene.accuracy(student(scene.view.of_records(scene.test.flat())))}


def _columns(shards: list[Records]) -> tuple[list[Any], list[Any]]:
    return [shard.features for shard in shards], [shard.labels for shard in shards]


def fedavg(scene: Scene) -> dict[str, Any]:
    """Weights averaged by the number of records; momentum within a silo only."""
    weights, sizes = flat_weights(scene.classifier()), torch.tensor([float(len(shard)) for shard in scene.shards])
    seen = [scene.view.of_records(shard.flat()) for shard in scene.shards]
    generator = torch.Generator().manual_seed(scene.row.seed)
    for _ in range(FEDAVG_ROUNDS):
        local = []
        for shown, shard in zip(seen, scene.shards, strict=True):
            classifier = with_weights(scene.classifier(), weights.clone())
            optimizer = torch.optim.SGD(classifier.parameters(), 0.01, 0.9)
            for _ in range(FEDAVG_STEPS):
                drawn = torch.randint(len(shard), (128,), generator=generator)
                loss = F.cross_entropy(classifier(shown[drawn]), torch.from_numpy(shard.labels)[drawn])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            local.append(flat_weights(classifier))
        weights = (torch.stack(local) * (sizes / sizes.sum())[:, None]).sum(0)
    return {"student": scene.accuracy(scene.probabilities(weights, scene.test))}


def dp_fedavg(scene: Scene) -> dict[str, Any]:
    """Every step of all silos together, each with noise of its own for the guarantee of its own records."""
    rate, steps, clip, entropy = 0.1, 150, 8.0, SeededEntropy(scene.row.seed)
    noise = calibrate(lambda z: [SampledGaussian(z, rate, steps)], scene.row.epsilon, DELTA)
    gradients = per_record_gradients(scene.classifier())
    seen = [scene.view.of_records(shard.flat()) for shard in scene.shards]
    descent = Descent(flat_weights(scene.classifier()), scene.row.network)
    grid = fine_grid(clip, len(descent.weights))
    for _ in range(steps):
        total = np.zeros(len(descent.weights), dtype=np.int64)
        for shown, shard in zip(seen, scene.shards, strict=True):
            drawn = np.flatnonzero(coin_flips(entropy, len(shard), rate))
            labels = torch.from_numpy(shard.labels[drawn])
            total += clipped_sum(gradients, descent.weights, shown[drawn], labels, clip)
            total += rounded_gaussian(noise * clip / grid, total.size, entropy)
        descent.step(torch.from_numpy(total * grid))
    return {"student": scene.accuracy(scene.probabilities(descent.averaged, scene.test))}


OTHERS: dict[str, Callable[[Scene], dict[str, Any]]] = {
    "teachers": teachers,
    "real images": real_images,
    "fedavg": fedavg,
    "dp-fedavg": dp_fedavg,
}


def _keep_what_networks_see(folder: Path) -> None:
    """Seeds, budgets and variants look at the same records through the same network: once is enough for a benchmark."""
    folder.mkdir(exist_ok=True)
    look = View.of_records

    def recall(view: View, features: Any) -> Tensor:
        if view.backbone is None or len(features) < 100:
            return look(view, features)
        file = folder / f"{hashlib.sha256(view.backbone.digest.encode() + features.tobytes()).hexdigest()}.pt"
        if not file.exists():
            torch.save(look(view, features), file)
        return torch.as_tensor(torch.load(file))

    View.of_records = recall  # type: ignore[method-assign]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of images in IDX files or CIFAR batches")
    parser.add_argument("--out", type=Path, required=True, help="folder for rows.jsonl and contact sheets")
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--variants", nargs="+", default=[*RECIPES, *OTHERS], choices=[*RECIPES, *OTHERS])
    parser.add_argument("--epsilons", nargs="+", type=float, default=[10.0, 1.0, float("inf")])
    parser.add_argument("--silos", type=int, default=5)
    parser.add_argument("--alpha", type=float, default=0.5)
    parser.add_argument("--network", default="linear", choices=["linear", "mlp", "convnet"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--train-models", action="store_true", help="also train fresh models on the synthetic records")
    parser.add_argument("--held-out", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
