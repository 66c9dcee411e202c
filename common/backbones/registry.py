"""The networks a backbone can be, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from torch import Tensor, nn

from silosynth.common.backbones.efficientnet import efficientnet_lite0, efficientnet_lite0_weights
from silosynth.common.backbones.residual import small_residual, wide_residual
from silosynth.common.backbones.torchvision_networks import torchvision_network, torchvision_weights


@dataclass(frozen=True)
class PublicWeights:
    """Weights others trained on ImageNet, and how they want their images."""

    load: Callable[[], dict[str, Tensor]]
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    side: int = 96
    """Smaller images are enlarged to it: on CIFAR-10, 96 pixels serve such networks far better than 32 or 64."""
    classes: int = 1000


@dataclass(frozen=True)
class Architecture:
    build: Callable[[int, int], nn.Module]
    """(channels, classes) to a network that gives class logits."""
    public: PublicWeights | None = None

    @property
    def channels(self) -> tuple[int, ...]:
        """What images it can be built for; networks that come with weights were all trained in colour."""
        return (3,) if self.public else (1, 3)


def _of_torchvision(name: str) -> Architecture:
    # torchvision's usual mean and deviation, for pixels in [-1, 1] instead of [0, 1]
    mean, std = (-0.03, -0.088, -0.188), (0.458, 0.448, 0.45)
    return Architecture(
        partial(torchvision_network, name), PublicWeights(partial(torchvision_weights, name), mean, std)
    )


ARCHITECTURES = {
    "residual-16": Architecture(partial(small_residual, (16, 32, 64), 2)),
    "residual-24": Architecture(partial(small_residual, (24, 48, 96), 1)),
    "wrn-22-8": Architecture(partial(wide_residual, 22, 8)),
    "resnet18": _of_torchvision("resnet18"),
    "efficientnet-b0": _of_torchvision("efficientnet_b0"),
    "efficientnet-lite0": Architecture(
        efficientnet_lite0,
        # (pixel - 127) / 128 for pixels from 0 to 255
        PublicWeights(efficientnet_lite0_weights, (-1 / 255,) * 3, (256 / 255,) * 3),
    ),
}
