"""Models trained on synthetic data to find out what it is worth, by name.

Their usual widths suit a processor; those of the papers are convnet-128, alexnet-128, vgg11-64 and resnet18-64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from silosynth.common.errors import ConfigError
from silosynth.common.networks.extractors import draw_network
from silosynth.common.schema import Schema
from silosynth.server.config import EvaluationSettings
from silosynth.server.evaluation import networks


@dataclass(frozen=True)
class _Architecture:
    build: Callable[[Schema, int, int], nn.Module]
    """From schema, width and seed."""
    width: int = 0  # the usual one; 0 where there is none to choose
    for_tables: bool = False
    smallest_side: int = 1

    def fits(self, schema: Schema) -> bool:
        return min(schema.shape[:2]) >= self.smallest_side if schema.is_image else self.for_tables


def _drawn(build: Callable[[Schema, int], nn.Module]) -> Callable[[Schema, int, int], nn.Module]:
    """With PyTorch's initialization, the same for the same seed, and nobody else's randomness touched."""

    def seeded(schema: Schema, width: int, seed: int) -> nn.Module:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return build(schema, width)

    return seeded


def _convnet(schema: Schema, width: int, seed: int) -> nn.Module:
    return draw_network("convnet", schema, width, seed)


_ARCHITECTURES = {
    "linear": _Architecture(_drawn(networks.linear), for_tables=True),
    "mlp": _Architecture(_drawn(networks.mlp), 128, for_tables=True),
    "convnet": _Architecture(_convnet, 32),
    "lenet": _Architecture(_drawn(networks.lenet), smallest_side=networks.LENET_SMALLEST_SIDE),
    "alexnet": _Architecture(_drawn(networks.alexnet), 32),
    "vgg11": _Architecture(_drawn(networks.vgg11), 16),
    "resnet18": _Architecture(_drawn(networks.resnet18), 16),
}
BACKBONE = "backbone"


def model_for(name: str, schema: Schema, protocol: str = "quick") -> str:
    """What "auto" means for these records; ConfigError for a model that does not fit them."""
    if name == "auto":
        return _automatic(schema, protocol)
    fitting = [known for known, architecture in _ARCHITECTURES.items() if architecture.fits(schema)]
    fitting += [BACKBONE] if schema.is_image else []
    if _parts(name)[0] not in fitting:
        raise ConfigError(f"evaluation model {name!r} does not fit these records: choose auto, {', '.join(fitting)}")
    return name


def models_for(settings: EvaluationSettings, schema: Schema) -> tuple[str, ...]:
    """All models that settings ask for, the headline's first, each once; ConfigError if one does not fit."""
    names = (settings.model, *settings.architectures)
    return tuple(dict.fromkeys(model_for(name, schema, settings.protocol) for name in names))


def build_model(name: str, schema: Schema, seed: int, device: torch.device) -> nn.Module:
    """A fresh model from records in [-1, 1] to class scores; images come as (count, channels, height, width)."""
    kind, width = _parts(name)
    architecture = _ARCHITECTURES[kind]
    return architecture.build(schema, width or architecture.width, seed).to(device)


def convnet_width(name: str) -> int:
    """Of a convnet of this name, else the usual one."""
    kind, width = _parts(name)
    return width if width and kind == "convnet" else _ARCHITECTURES["convnet"].width


def _parts(name: str) -> tuple[str, int | None]:
    """Architecture and, after a dash, width."""
    kind, _, width = name.partition("-")
    return kind, int(width) if width else None


def _automatic(schema: Schema, protocol: str) -> str:
    if not schema.is_image:
        return "linear"
    return BACKBONE if protocol == "sps" else "convnet"
