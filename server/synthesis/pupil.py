"""The student: a classifier that learns from what teachers said, as often as it likes."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from silosynth.common.procedural.dice import Dice
from silosynth.common.teaching.views import View

_BATCH = 256
_LEARNING_RATE = 1e-2
_LOOK = 256  # inputs seen at once
_REMEMBERED = 20_000  # inputs; older ones are forgotten, lest memory grow with the rounds


@dataclass
class Pupil:
    """Answers once paid for are remembered: going over them again costs no privacy."""

    view: View
    classifier: nn.Module
    seed: int
    weight_decay: float = 0.0
    _seen: list[Tensor] = field(default_factory=list)
    _targets: list[Tensor] = field(default_factory=list)
    _studies: int = 0

    @torch.no_grad()
    def probabilities(self, inputs: Tensor) -> Tensor:
        return torch.cat([self.classifier(self.view(part)).softmax(1) for part in torch.split(inputs, _LOOK)])

    def remember(self, inputs: Tensor, targets: Tensor) -> None:
        with torch.no_grad():
            self.remember_seen(torch.cat([self.view(part) for part in torch.split(inputs, _LOOK)]), targets)

    def remember_seen(self, seen: Tensor, targets: Tensor) -> None:
        """Of inputs that were looked at before."""
        self._seen.append(seen)
        self._targets.append(targets)
        while len(self._targets) > 1 and sum(map(len, self._targets)) > _REMEMBERED:
            del self._seen[0], self._targets[0]

    def study(self, steps: int) -> float:
        """Cross-entropy to everything remembered, the learning rate falling to nothing."""
        seen, targets = torch.cat(self._seen), torch.cat(self._targets)
        optimizer = torch.optim.AdamW(self.classifier.parameters(), _LEARNING_RATE, weight_decay=self.weight_decay)
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps)
        dice, loss = Dice(self.seed, self._studies), torch.zeros(())
        self._studies += 1
        for _ in range(steps):
            drawn = dice.integers(len(targets), min(_BATCH, len(targets)))
            loss = F.cross_entropy(self.classifier(seen[drawn]), targets[drawn])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
        return float(loss.detach())


def on_simplex(points: Tensor) -> Tensor:
    """The nearest probabilities to each row."""
    falling, _ = points.sort(dim=1, descending=True)
    excess = (falling.cumsum(1) - 1) / torch.arange(1, points.shape[1] + 1)
    last = (falling > excess).sum(1, keepdim=True) - 1
    return (points - excess.gather(1, last)).clamp(min=0)
