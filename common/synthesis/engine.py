"""From a target to images. The set is cut into parts that know nothing of each other, each made by one device.

A part's images depend on its start, labels, number and the seed alone, not on how many devices there are or whether the
job was interrupted. A target's memory spans the batches of one part.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event, Lock

import torch
from pydantic import JsonValue
from torch import Tensor

from silosynth.common.errors import DataError
from silosynth.common.synthesis.part import Part, make
from silosynth.common.synthesis.settings import Settings, Workshop
from silosynth.common.synthesis.target import Target

Sketch = Callable[[], tuple[Tensor, Tensor]]
"""Makes, when asked, the images of one part as they are now, with their labels."""
Report = Callable[[float, float, Sketch], None]
"""(share of the work done, loss of the latest batch, the part it is of); called by one thread at a time."""


def synthesize(
    target: Target,
    start: Tensor,
    labels: Tensor,
    settings: Settings,
    report: Report,
    *,
    seed: int = 0,
    workshop: Workshop | None = None,
    checkpoints: Path | None = None,
) -> Tensor:
    """Images in [-1, 1], made from those of `start` (images, channels, height, width) on the CPU.

    Batches are consecutive images: order the labels so that they are balanced (see `balanced_labels`). With a folder
    for checkpoints an interrupted job goes on where it was; other jobs may keep theirs beside it.
    """
    if len(start) != len(labels) or len(start) == 0:
        raise DataError(f"{len(start)} images to start from, {len(labels)} labels: give one label to each image")
    workshop = workshop or Workshop()
    places = workshop.places()
    job = _Job(_parts(target, start, labels, settings, seed, checkpoints), settings.steps, report)
    with ThreadPoolExecutor(len(places)) as workers:
        try:
            futures = [workers.submit(_work, job, target, settings, device, workshop.autocast) for device in places]
            for future in futures:
                future.result()
        finally:
            job.stopped.set()
    return torch.cat([job.finished[number] for number in sorted(job.finished)])


def balanced_labels(classes: int, per_class: int) -> Tensor:
    """0, 1, ..., 0, 1, ...: consecutive images are of as many classes as can be."""
    return torch.arange(classes).repeat(per_class)


@dataclass
class _Job:
    """What workers share."""

    parts: list[Part]
    steps: int
    report: Report
    waiting: SimpleQueue[Part] = field(default_factory=SimpleQueue)
    finished: dict[int, Tensor] = field(default_factory=dict)
    done: dict[int, int] = field(default_factory=dict)
    stopped: Event = field(default_factory=Event)
    lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        for part in self.parts:
            self.waiting.put(part)

    def tell(self, part: Part, steps: int, loss: float, images: Callable[[], Tensor]) -> None:
        with self.lock:
            self.done[part.number] = steps
            share = sum(self.done.values()) / (self.steps * len(self.parts))
            self.report(share, loss, lambda: (images(), part.labels))


def _work(job: _Job, target: Target, settings: Settings, device: torch.device, autocast: bool) -> None:
    """Make parts until none is left, or until the job was given up."""
    with suppress(Empty):
        while True:
            part = job.waiting.get_nowait()
            try:
                images = make(part, target.on(device, autocast), settings, device, job.tell, job.stopped)
            except BaseException:
                job.stopped.set()
                raise
            if images is None:
                return
            job.finished[part.number] = images


def _parts(
    target: Target, start: Tensor, labels: Tensor, settings: Settings, seed: int, checkpoints: Path | None
) -> list[Part]:
    """Of nearly the same size: statistics of a small remainder would be poor."""
    count = -(-len(start) // (settings.batch * settings.batches_together))
    pieces = zip(start.tensor_split(count), labels.tensor_split(count), strict=True)
    identified = [
        ((seed, number), images, classes, _identity((seed, number), images, classes, settings, target))
        for number, (images, classes) in enumerate(pieces)
    ]
    return [Part(*part, checkpoints and checkpoints / _file_name(part[-1])) for part in identified]


def _identity(
    seeds: tuple[int, int], images: Tensor, labels: Tensor, settings: Settings, target: Target
) -> dict[str, JsonValue]:
    beginning = hashlib.sha256(images.float().contiguous().numpy().data)
    beginning.update(labels.long().contiguous().numpy().data)
    return {
        "seeds": list(seeds),
        "start": beginning.hexdigest(),
        "settings": settings.model_dump(mode="json"),
        "target": target.identity,
    }


def _file_name(identity: dict[str, JsonValue]) -> str:
    """A run started again may have heard other silos: what belongs to another target is no hindrance."""
    return f"part-{hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]}.safetensors"
