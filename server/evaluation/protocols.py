"""How models are trained on a synthetic set before they are tested, by name.

quick         AdamW, one warm and one long falling slope, noise on the records: seconds on a processor
family        as the dataset condensation papers evaluate: SGD, rate falling tenfold half-way, Siamese augmentation
family-short  the same in fewer epochs
sps           as the SPS paper evaluates: GSAM around Adam, at a tiny rate where a public backbone is fine-tuned
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LRScheduler, MultiStepLR, OneCycleLR

from silosynth.server.evaluation.gsam import Gsam

_QUICK_STEPS = 400
_SPS_SIZES = (1000, 2500, 5000, 10000, 15000, 20000, 25000, 40000, 50000)
_SPS_EPOCHS = (100, 60, 45, 30, 24, 20, 18, 12, 10)
# Without flip: a mirrored digit or letter is another one. Where mirror images are as likely, settings add it.
_FAMILY_AUGMENTATION = ("color", "crop", "cutout", "scale", "rotate")


@dataclass(frozen=True)
class Protocol:
    learning_rate: float
    tuning_rate: float  # for a network that comes trained: large steps on synthetic images would spoil it
    batch: int
    optimizer: Callable[[list[Tensor], float], Optimizer]
    schedule: Callable[[Optimizer, int], LRScheduler]
    epochs: Callable[[int], float]  # of a set of this many records, unless settings say how many steps
    most_steps: int  # keeps the non-private ceiling, which has many records, affordable
    whole_epochs: bool = True  # each record once an epoch, or drawn anew for every batch
    noise: float = 0.0
    augmentation: tuple[str, ...] = ()
    sharpness: Callable[[Optimizer], Gsam] | None = None

    def steps(self, count: int) -> int:
        return round(min(self.most_steps, self.epochs(count) * math.ceil(count / self.batch)))

    def batches(self, count: int, dice: torch.Generator) -> Iterator[Tensor]:
        """Rows of the records of each batch, without end."""
        while not self.whole_epochs:
            yield torch.randint(count, (self.batch,), generator=dice)
        while True:
            order = torch.randperm(count, generator=dice)
            yield from torch.split(order, self.batch)


def _one_cycle(optimizer: Optimizer, steps: int) -> LRScheduler:
    return OneCycleLR(optimizer, optimizer.param_groups[0]["lr"], total_steps=steps)


def _tenth_at_half(optimizer: Optimizer, steps: int) -> LRScheduler:
    return MultiStepLR(optimizer, [steps // 2], gamma=0.1)


def _sps_epochs(count: int) -> float:
    """The paper's table, and between its entries a line."""
    return float(np.interp(count, _SPS_SIZES, _SPS_EPOCHS))


_FAMILY = Protocol(
    learning_rate=0.01,
    tuning_rate=1e-4,
    batch=256,
    optimizer=partial(SGD, momentum=0.9, weight_decay=5e-4),
    schedule=_tenth_at_half,
    epochs=lambda _: 1000,
    most_steps=20_000,
    augmentation=_FAMILY_AUGMENTATION,
)

PROTOCOLS = {
    # Each record gets noise of its own random strength: small synthetic sets are learned by heart without it. (Chosen
    # on the training parts of MNIST and Fashion-MNIST; shifting images as well made small ones worse.)
    "quick": Protocol(
        learning_rate=5e-3,
        tuning_rate=1e-4,
        batch=64,
        optimizer=partial(AdamW, weight_decay=1e-2),
        schedule=_one_cycle,
        epochs=lambda _: math.inf,
        most_steps=_QUICK_STEPS,
        whole_epochs=False,
        noise=0.3,
    ),
    "family": _FAMILY,
    "family-short": replace(_FAMILY, epochs=lambda _: 300, most_steps=2_000),
    "sps": Protocol(
        learning_rate=1e-3,
        tuning_rate=1e-5,
        batch=256,
        optimizer=Adam,
        schedule=lambda optimizer, steps: CosineAnnealingLR(optimizer, steps),
        epochs=_sps_epochs,
        most_steps=20_000,
        sharpness=partial(Gsam, rho=(0.02, 0.05), alpha=0.04),
    ),
}
