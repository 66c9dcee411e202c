"""The student: a classifier that learns from what teachers said, as often as it likes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from silosynth.common.procedural.dice import Dice
from silosynth.common.teaching.views import View

_BATCH = 256
_LEARNING_RATE = 1e-2
_DECAY = 0.1  # of the weights, while answers are still coming
_JUDGES = 8  # every so-many-th answer is not taught but judges which student is best
_LOOK = 256  # inputs seen at once
_REMEMBERED = 20_000  # inputs; older ones are forgotten, lest memory grow with the rounds


@dataclass
class Pupil:
    """Answers once paid for are remembered: going over them again costs no privacy."""

    view: View
    classifier: nn.Module
    seed: int
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
        """Everything remembered."""
        return self._teach(self.classifier, torch.cat(self._seen), torch.cat(self._targets), steps, _DECAY)

    def graduate(self, candidates: Sequence[tuple[nn.Module, float]], steps: int) -> None:
        """Become the best of these classifiers, each with a decay of its weights, judged by answers it was not taught.

        Answers are few or many, exact or noisy, of teachers alike or unlike: how rich a student they can teach is
        seen by trying.
        """
        seen, targets = torch.cat(self._seen), torch.cat(self._targets)
        judges = torch.arange(len(targets)) % _JUDGES == _JUDGES - 1
        losses = list[float]()
        for classifier, decay in candidates:
            self._teach(classifier, seen[~judges], targets[~judges], steps, decay)
            with torch.no_grad():
                losses.append(float(F.cross_entropy(classifier(seen[judges]), targets[judges])))
        self.classifier = candidates[losses.index(min(losses))][0]

    def _teach(self, classifier: nn.Module, seen: Tensor, targets: Tensor, steps: int, decay: float) -> float:
        """By cross-entropy, the learning rate falling to nothing."""
        optimizer = torch.optim.AdamW(classifier.parameters(), _LEARNING_RATE, weight_decay=decay)
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps)
        dice, loss = Dice(self.seed, self._studies), torch.zeros(())
        self._studies += 1
        for _ in range(steps):
            drawn = dice.integers(len(targets), min(_BATCH, len(targets)))
            loss = F.cross_entropy(classifier(seen[drawn]), targets[drawn])
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
