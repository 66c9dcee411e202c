"""More records from a release's own statistics, by whoever has the release: no silo is asked, no privacy is spent.

The images are made in parts of the release's own size, each from a seed of its own. A part that is finished stays, so
work that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file

from silosynth.common.errors import ConfigError
from silosynth.common.publication.contents import ARRAYS, PICTURES, Labels, Pixels, write_arrays, write_pictures
from silosynth.common.publication.manifest import Manifest
from silosynth.common.publication.signature import MANIFEST
from silosynth.common.publication.verification import verify_release
from silosynth.common.synthesis.engine import Report, Sketch

Models = Mapping[str, Mapping[str, npt.NDArray[Any]]]
Made: TypeAlias = tuple[Pixels, Labels, npt.NDArray[np.float32] | None]
Progress = Callable[[float], None]
Make = Callable[[Models, int, int, Report], Made]
"""As `synthesize_again`: models, images per class, seed, report."""

_README = """\
# {images} more images of {name}

Synthesized from the statistics that {name} holds, with seed {seed}. That is post-processing: it cost no privacy, and
the figures in the privacy card of {name} hold for these images too. manifest.json of {name} has SHA-256
{identity}.

`torchvision.datasets.ImageFolder("data/train")`, `datasets.load_dataset("imagefolder", data_dir="data/train")` and
`numpy.load("data/train.npz", allow_pickle=False)` read them.
"""


@dataclass(frozen=True)
class Order:
    """How many images of all classes together, and from which public seed."""

    images: int
    seed: int


def synthesize_more(release: Path, order: Order, target: Path, make: Make, progress: Progress) -> int:
    """Verify the release in `release`, make the images and write them into `target`; returns how many they are."""
    if target.exists():
        raise ConfigError(f"{target} exists already and is not overwritten: choose another folder with --output")
    manifest = verify_release(release)
    models, parts = _statistics(release, manifest), target.with_name(f".{target.name}.parts")
    sizes = _part_sizes(manifest, order)
    made = [
        _part(parts, models, size, order.seed + number, make, _Share(progress, number, len(sizes)))
        for number, size in enumerate(sizes)
    ]
    images, labels, soft = _joined(made)
    unfinished = parts / "unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    (unfinished / "data").mkdir(parents=True)
    write_arrays(unfinished / ARRAYS, "images", images, labels, soft)
    write_pictures(unfinished / PICTURES, images, labels, manifest.classes)
    (unfinished / "README.md").write_text(_readme(release, manifest, order, len(images)))
    unfinished.rename(target)
    shutil.rmtree(parts)
    return len(images)


def _statistics(release: Path, manifest: Manifest) -> Models:
    models = {path.stem: load_file(path) for path in sorted((release / "models").glob("*.safetensors"))}
    if not any(name.startswith("statistics-") for name in models):
        raise ConfigError(
            f"{manifest.release} was made by {manifest.run.recipe} and holds no statistics to synthesize from: "
            "releases of the recipe sps do"
        )
    return models


def _part_sizes(manifest: Manifest, order: Order) -> list[int]:
    """Images per class of each part; classes stay balanced, so there may be a few more than were asked for."""
    classes = len(manifest.classes)
    wanted, largest = -(-order.images // classes), max(1, manifest.records // classes)
    return [min(largest, wanted - start) for start in range(0, wanted, largest)]


def _part(folder: Path, models: Models, size: int, seed: int, make: Make, share: _Share) -> Made:
    path = folder / f"{_digest(models)}-{size}-{seed}.npz"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_arrays(path.with_suffix(".unfinished.npz"), "images", *make(models, size, seed, share.report))
        path.with_suffix(".unfinished.npz").rename(path)
    share.done(1.0)
    with np.load(path, allow_pickle=False) as data:
        return data["images"], data["labels"], data.get("soft_labels")


def _digest(models: Models) -> str:
    """Parts of another release must not slip in."""
    total = hashlib.sha256()
    for name in sorted(models):
        for key in sorted(models[name]):
            total.update(np.ascontiguousarray(models[name][key]).data)
    return total.hexdigest()[:16]


@dataclass(frozen=True)
class _Share:
    """One part's progress as progress of the whole."""

    progress: Progress
    number: int
    parts: int

    def done(self, share: float) -> None:
        self.progress((self.number + share) / self.parts)

    def report(self, share: float, loss: float, sketch: Sketch) -> None:
        self.done(share)


def _joined(made: list[Made]) -> Made:
    images, labels, soft = zip(*made, strict=True)
    whole = None if soft[0] is None else np.concatenate(soft)
    return np.concatenate(images), np.concatenate(labels), whole


def _readme(release: Path, manifest: Manifest, order: Order, images: int) -> str:
    identity = hashlib.sha256((release / MANIFEST).read_bytes()).hexdigest()
    return _README.format(images=images, name=manifest.release, seed=order.seed, identity=identity)
