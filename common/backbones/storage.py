"""Backbones as safetensors files: no pickle, and nothing in the file is believed before it was checked.

A guard reads such files from a server it does not trust. The header says which network it is; what that network's
tensors must look like follows from our own code, and so does the size of the file.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import safetensors.torch
import torch
from pydantic import JsonValue, TypeAdapter, ValidationError
from torch import nn

from silosynth.common.backbones.backbone import Backbone
from silosynth.common.backbones.blueprint import Blueprint, stored_tensors
from silosynth.common.config import Section
from silosynth.common.errors import ConfigError, DataError, VerificationFailed

MAX_FILE_BYTES = 1 << 28
MAX_HEADER_BYTES = 1 << 20
METADATA_KEY = "silosynth"
"""All metadata is one JSON text under one key: safetensors writes several keys in random order."""

Tensors = dict[str, torch.Tensor]


class Metadata(Section):
    version: Literal[1] = 1
    blueprint: Blueprint
    recipe: dict[str, JsonValue]


def encode_backbone(backbone: Backbone) -> bytes:
    metadata = Metadata(blueprint=backbone.blueprint, recipe=dict(backbone.recipe))
    tensors = {name: tensor.cpu().contiguous() for name, tensor in stored_tensors(backbone.network).items()}
    content: bytes = safetensors.torch.save(tensors, {METADATA_KEY: metadata.model_dump_json()})
    return content


def save_backbone(backbone: Backbone, path: Path) -> None:
    write_whole(path, encode_backbone(backbone))


def write_whole(path: Path, content: bytes) -> None:
    """Whole or not at all."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_name(path.name + ".part")
        with scratch.open("wb") as file:
            file.write(content)
            os.fsync(file.fileno())
        scratch.replace(path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror}): choose another place") from error


def read_backbone(path: Path) -> Backbone:
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}): check the path of the backbone") from error
    return decode_backbone(content, str(path))


def decode_backbone(content: bytes, source: str) -> Backbone:
    """`source` names the file or peer in complaints."""
    try:
        metadata, size = _header(content)
        network = metadata.blueprint.network()
        # As long as the network it claims to be: reading it takes no more memory than our own code has bounded.
        if size != sum(tensor.nbytes for tensor in stored_tensors(network).values()):
            raise VerificationFailed(f"it is not as long as {metadata.blueprint.architecture} is")
        load_tensors(network, _tensors(content))
    except VerificationFailed as error:
        raise VerificationFailed(f"{source}: no backbone of ours: {error}") from None
    return Backbone(metadata.blueprint, network, metadata.recipe)


def load_tensors(network: nn.Module, tensors: Tensors) -> None:
    """Put the numbers into the network if they are exactly its own, float32, finite, and variances not negative."""
    expected = {name: tensor.shape for name, tensor in stored_tensors(network).items()}
    if {name: tensor.shape for name, tensor in tensors.items()} != expected:
        raise VerificationFailed("its tensors are not those of the network it names")
    for name, tensor in tensors.items():
        if tensor.dtype != torch.float32 or not torch.isfinite(tensor).all():
            raise VerificationFailed(f"{name} is not float32, or not finite everywhere")
        if name.endswith("running_var") and (tensor < 0).any():
            raise VerificationFailed(f"{name} holds negative variances")
    network.load_state_dict(tensors, strict=False)


def _header(content: bytes) -> tuple[Metadata, int]:
    """What it claims to be, and how many bytes of tensors follow."""
    if len(content) > MAX_FILE_BYTES:
        raise VerificationFailed(f"it is larger than {MAX_FILE_BYTES >> 20} MB")
    size = int.from_bytes(content[:8], "little")
    if size > min(MAX_HEADER_BYTES, len(content) - 8):
        raise VerificationFailed("its header is missing or too long")
    try:
        header = TypeAdapter(dict[str, JsonValue]).validate_json(content[8 : 8 + size])
        texts = TypeAdapter(dict[str, str]).validate_python(header.get("__metadata__"))
        return Metadata.model_validate_json(texts.get(METADATA_KEY, "")), len(content) - 8 - size
    except ValidationError:
        raise VerificationFailed("its header does not describe one: it may come from another program") from None


def _tensors(content: bytes) -> Tensors:
    try:
        tensors: Tensors = safetensors.torch.load(content)
    except Exception:  # the reader fails on a damaged file in more ways than can be listed
        raise VerificationFailed("it is damaged") from None
    return tensors
