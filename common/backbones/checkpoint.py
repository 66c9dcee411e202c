"""Where an interrupted training goes on: weights and the optimizer's memory as safetensors, the rest as JSON in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from pydantic import JsonValue
from torch import Tensor, nn

from silosynth.common.backbones.storage import METADATA_KEY, write_whole
from silosynth.common.errors import ConfigError


def save_checkpoint(
    path: Path, network: nn.Module, optimizer: torch.optim.Optimizer, recipe: dict[str, JsonValue], step: int
) -> None:
    tensors = {f"network.{name}": tensor for name, tensor in network.state_dict().items()}
    for number, memory in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{number}.{name}": tensor for name, tensor in memory.items()}
    stored = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
    write_whole(path, safetensors.torch.save(stored, {METADATA_KEY: json.dumps({"recipe": recipe, "step": step})}))


def load_checkpoint(
    path: Path, network: nn.Module, optimizer: torch.optim.Optimizer, recipe: dict[str, JsonValue]
) -> int:
    """Steps done so far; none if there is no checkpoint. One of another recipe is refused, not overwritten."""
    if not path.exists():
        return 0
    try:
        with safetensors.safe_open(path, "pt") as file:
            progress = json.loads(file.metadata()[METADATA_KEY])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except Exception as error:  # the reader fails on a damaged file in more ways than can be listed
        raise ConfigError(f"{path}: is no checkpoint, or a damaged one: remove it to start afresh") from error
    if progress["recipe"] != recipe:
        raise ConfigError(f"{path}: belongs to a training with other settings: remove it, or write elsewhere")
    network.load_state_dict(_under("network.", tensors))
    optimizer.load_state_dict(optimizer.state_dict() | {"state": _memories(_under("optimizer.", tensors))})
    return int(progress["step"])


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _memories(tensors: dict[str, Tensor]) -> dict[int, dict[str, Any]]:
    """From "3.exp_avg" to the nested dictionaries that optimizers keep."""
    memories: dict[int, dict[str, Any]] = {}
    for name, tensor in tensors.items():
        number, _, part = name.partition(".")
        memories.setdefault(int(number), {})[part] = tensor
    return memories
