"""A public backbone with a new head for the classes at hand."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from silosynth.common.backbones import Backbone
from silosynth.common.schema import Schema
from silosynth.server.evaluation.examples import Examples

_READ_BATCH = 512
_HEAD_ITERATIONS = 100
_HEAD_PENALTY = 1e-2  # chosen on the training part of Fashion-MNIST; from 3e-3 to 3e-2 it hardly matters


class TunedBackbone(nn.Module):
    """Its own copy of the network. BatchNorm stays frozen: synthetic images would bend statistics and scales alike."""

    def __init__(self, backbone: Backbone, schema: Schema, device: torch.device) -> None:
        super().__init__()
        self.network = copy.deepcopy(backbone.network)
        # It prepares images as that backbone wants them; its constructor freezes the network, which is undone below.
        self._looking = Backbone(backbone.blueprint, self.network, backbone.recipe)
        self._head_name = _last_linear(self.network)
        with torch.random.fork_rng():  # its random weights are replaced by `fit_head`
            self._put_head(nn.Linear(self._head.in_features, schema.classes))
        self._looking.to(device)
        self._thaw()

    def forward(self, images: Tensor) -> Tensor:
        return self._looking.logits(images)

    def published(self) -> Backbone:
        """A frozen copy of what it is now, with its head: a backbone of the classes at hand."""
        blueprint = self._looking.blueprint.model_copy(update={"classes": self._head.out_features})
        recipe = {**self._looking.recipe, "head": "fitted to synthetic records"}
        return Backbone(blueprint, copy.deepcopy(self.network), recipe)

    def train(self, mode: bool = True) -> TunedBackbone:
        """There is only one mode: as the network was published."""
        super().train(mode)
        self.network.eval()
        return self

    def fit_head(self, examples: Examples) -> None:
        """Multinomial regression on standardized features, which is convex: no learning rate, no luck."""
        features = self.features(examples)
        std, mean = torch.std_mean(features, 0, correction=0)
        std = std.clamp_min(1e-6)
        weights = _regression((features - mean) / std, examples.targets, self._head.out_features)
        with torch.no_grad():
            self._head.weight.copy_(weights[:, :-1] / std)
            self._head.bias.copy_(weights[:, -1] - self._head.weight @ mean)

    @torch.no_grad()
    def features(self, examples: Examples) -> Tensor:
        """What enters the head."""
        head = self._head
        self._put_head(nn.Identity())
        features = torch.cat([self(images) for images in examples.in_order(_READ_BATCH)])
        self._put_head(head)
        return features

    @property
    def _head(self) -> nn.Linear:
        head = self.network.get_submodule(self._head_name)
        assert isinstance(head, nn.Linear)
        return head

    def _put_head(self, head: nn.Module) -> None:
        parent, _, name = self._head_name.rpartition(".")
        setattr(self.network.get_submodule(parent), name, head)

    def _thaw(self) -> None:
        self.network.requires_grad_(True)
        for module in self.network.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.requires_grad_(False)


def _last_linear(network: nn.Module) -> str:
    """The layer that gives class logits, in every registered network."""
    names: list[str] = [name for name, module in network.named_modules() if isinstance(module, nn.Linear)]
    return names[-1]


def _regression(features: Tensor, targets: Tensor, classes: int) -> Tensor:
    """Weights (classes, features + 1) of least cross-entropy with a small penalty on all but the last column."""
    rows = F.pad(features, (0, 1), value=1.0)
    weights = torch.zeros(classes, rows.shape[1], device=rows.device, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights], max_iter=_HEAD_ITERATIONS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        penalty = _HEAD_PENALTY * weights[:, :-1].square().sum()
        total = F.cross_entropy(rows @ weights.T, targets) + penalty
        total.backward()  # type: ignore[no-untyped-call]
        return total

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    return weights.detach()
