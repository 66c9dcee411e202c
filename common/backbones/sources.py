"""Where a backbone can come from: shipped with the product, a file, a seed, or weights others published."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from silosynth.common.backbones.backbone import Backbone
from silosynth.common.backbones.blueprint import Blueprint, stored_tensors
from silosynth.common.backbones.registry import ARCHITECTURES
from silosynth.common.backbones.storage import load_tensors, read_backbone
from silosynth.common.config import parse
from silosynth.common.errors import ConfigError, DataError
from silosynth.common.schema import Schema
from silosynth.common.shipped import BY_CHANNELS

_WEIGHTS = Path(__file__).parent / "weights"
SHIPPED = tuple(sorted(file.stem for file in _WEIGHTS.glob("*.safetensors")))


def backbone(name: str, channels: int, *, classes: int = 10, seed: int = 0) -> Backbone:
    """A registered network with random weights: the same seed gives the same ones."""
    layout = {"architecture": name, "channels": channels, "classes": classes}
    pixels = {"mean": (0.0,) * channels, "std": (1.0,) * channels}
    blueprint = parse(Blueprint, layout | pixels, "backbone")
    return Backbone(blueprint, blueprint.network(seed), {"weights": "random", "seed": seed})


def load_backbone(source: str | Path) -> Backbone:
    """By the name of a shipped or published backbone, or from a file."""
    if source in SHIPPED:
        return read_backbone(_WEIGHTS / f"{source}.safetensors")
    if source in published():
        return _published(str(source))
    if Path(source).suffix == ".safetensors":
        return read_backbone(Path(source))
    raise ConfigError(
        f"there is no backbone {str(source)!r}: name a .safetensors file, one that is shipped ({', '.join(SHIPPED)}), "
        f"or one trained on ImageNet and published ({', '.join(published())})"
    )


def backbone_for(schema: Schema, name: str | None) -> Backbone:
    """The named one, else the shipped one for such images; ConfigError if it cannot look at them."""
    channels = schema.shape[2]
    chosen = name or BY_CHANNELS.get(channels)
    if chosen is None:
        raise ConfigError(f"no backbone is shipped for images of {channels} channels: set `backbone` to one for them")
    backbone = load_backbone(chosen)
    if channels not in (1, backbone.blueprint.channels):
        raise ConfigError(
            f"backbone {chosen} looks at images of {backbone.blueprint.channels} channels, these have {channels}: "
            "choose another"
        )
    return backbone


def imported_backbone(weights: Path, blueprint: dict[str, Any]) -> Backbone:
    """Of weights that somebody trained elsewhere, in a safetensors file whose tensors are named as the network's."""
    plan = parse(Blueprint, blueprint, "backbone import")
    network = plan.network()
    try:
        tensors = {name: tensor.float() for name, tensor in load_file(weights).items() if tensor.is_floating_point()}
    except Exception as error:  # the reader fails on a damaged file in more ways than can be listed
        raise DataError(f"{weights}: is no safetensors file, or a damaged one: check the path") from error
    if odd := sorted(stored_tensors(network).keys() ^ tensors.keys()):
        raise DataError(f"{weights}: these are not the tensors of {plan.architecture}: compare {', '.join(odd[:4])}")
    load_tensors(network, tensors)
    return Backbone(plan, network, {"weights": "imported", "file": weights.name})


def published() -> tuple[str, ...]:
    return tuple(name for name, network in ARCHITECTURES.items() if network.public)


def _published(name: str) -> Backbone:
    public = ARCHITECTURES[name].public
    assert public is not None
    blueprint = Blueprint(
        architecture=name, channels=3, classes=public.classes, mean=public.mean, std=public.std, side=public.side
    )
    network = blueprint.network()
    load_tensors(network, {key: tensor for key, tensor in public.load().items() if tensor.is_floating_point()})
    return Backbone(blueprint, network, {"weights": "trained on ImageNet, as published"})
