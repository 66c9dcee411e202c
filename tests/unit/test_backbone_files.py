"""Files of backbones: the identity is the content, and a hostile file is refused."""

import json
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from silosynth.common.backbones import (
    Backbone,
    backbone,
    decode_backbone,
    encode_backbone,
    load_backbone,
    save_backbone,
)
from silosynth.common.backbones.blueprint import stored_tensors
from silosynth.common.backbones.storage import METADATA_KEY
from silosynth.common.errors import VerificationFailed

Tensors = dict[str, torch.Tensor]
Metadata = dict[str, Any]


@pytest.fixture(scope="module")
def small() -> Backbone:
    return backbone("residual-16", 1, seed=1)


def repack(content: bytes, change: Callable[[Tensors, Metadata], None]) -> bytes:
    """The same file with its tensors or metadata changed."""
    tensors = {name: tensor.clone() for name, tensor in safetensors.torch.load(content).items()}
    size = int.from_bytes(content[:8], "little")
    metadata = json.loads(json.loads(content[8 : 8 + size])["__metadata__"][METADATA_KEY])
    change(tensors, metadata)
    packed: bytes = safetensors.torch.save(tensors, {METADATA_KEY: json.dumps(metadata)})
    return packed


def with_header(content: bytes, header: bytes) -> bytes:
    size = int.from_bytes(content[:8], "little")
    return struct.pack("<Q", len(header)) + header + content[8 + size :]


def test_what_is_saved_is_what_is_loaded(small: Backbone, tmp_path: Path) -> None:
    save_backbone(small, tmp_path / "deep" / "small.safetensors")
    loaded = load_backbone(tmp_path / "deep" / "small.safetensors")
    assert loaded.digest == small.digest
    assert loaded.recipe == small.recipe
    images = torch.rand(2, 1, 28, 28)
    assert torch.equal(loaded.logits(images), small.logits(images))
    assert [file.name for file in (tmp_path / "deep").iterdir()] == ["small.safetensors"]


def test_files_are_the_same_bytes_every_time(small: Backbone) -> None:
    assert encode_backbone(small) == encode_backbone(decode_backbone(encode_backbone(small), "memory"))


def test_the_recipe_is_no_part_of_the_identity(small: Backbone) -> None:
    renamed = Backbone(small.blueprint, small.network, {"story": "another"})
    assert renamed.digest == small.digest
    assert encode_backbone(renamed) != encode_backbone(small)


def test_one_changed_number_is_another_identity(small: Backbone) -> None:
    def nudge(tensors: Tensors, metadata: Metadata) -> None:
        tensors["head.bias"][0] += 1e-3

    assert decode_backbone(repack(encode_backbone(small), nudge), "memory").digest != small.digest


def _spoil_number(tensors: Tensors, _: Metadata) -> None:
    tensors["head.weight"][0, 0] = torch.nan


def _spoil_variance(tensors: Tensors, _: Metadata) -> None:
    tensors["norm.running_var"][0] = -1


def _spoil_type(tensors: Tensors, _: Metadata) -> None:
    tensors["head.bias"] = tensors["head.bias"].view(torch.int32)


def _spoil_shape(tensors: Tensors, _: Metadata) -> None:
    tensors["head.weight"] = tensors["head.weight"].T.contiguous()


def _rename_tensor(tensors: Tensors, _: Metadata) -> None:
    tensors["foot.bias"] = tensors.pop("head.bias")


def _add_tensor(tensors: Tensors, _: Metadata) -> None:
    tensors["extra"] = torch.zeros(1)


def _drop_tensor(tensors: Tensors, _: Metadata) -> None:
    del tensors["head.bias"]


def _set(**fields: object) -> Callable[[Tensors, Metadata], None]:
    return lambda tensors, metadata: metadata["blueprint"].update(fields)


@pytest.mark.parametrize(
    "change",
    [
        _spoil_number,
        _spoil_variance,
        _spoil_type,
        _spoil_shape,
        _rename_tensor,
        _add_tensor,
        _drop_tensor,
        _set(architecture="residual-99"),
        _set(architecture="wrn-22-8"),
        _set(architecture="resnet18"),
        _set(classes=1 << 40),
        _set(classes=True),
        _set(channels=3),
        _set(std=[0.0]),
        _set(mean=["nan"]),
        _set(side=10**9),
        _set(surprise=1),
        lambda tensors, metadata: metadata.update(version=2),
        lambda tensors, metadata: metadata.update(recipe=[]),
    ],
)
def test_a_file_that_is_not_what_it_claims_is_refused(
    small: Backbone, change: Callable[[Tensors, Metadata], None]
) -> None:
    with pytest.raises(VerificationFailed, match="server: no backbone of ours"):
        decode_backbone(repack(encode_backbone(small), change), "server")


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: b"\x80\x04\x95pickle",
        lambda content: content[:4],
        lambda content: content[:1000],
        lambda content: content[:-1],
        lambda content: content + b"\0",
        lambda content: struct.pack("<Q", 1 << 63) + content[8:],
        lambda content: struct.pack("<Q", len(content)) + content[8:],
        lambda content: with_header(content, b"{}"),
        lambda content: with_header(content, b"[1]"),
        lambda content: with_header(content, b"[" * 500_000),
        lambda content: with_header(content, b'{"__metadata__":{"silosynth":"' + b"[" * 1000 + b'"}}'),
        lambda content: with_header(content, b'{"__metadata__":{"silosynth":1}}'),
        lambda content: with_header(content, b"\xff" * 100),
    ],
)
def test_damaged_files_are_refused(small: Backbone, damage: Callable[[bytes], bytes]) -> None:
    with pytest.raises(VerificationFailed, match="no backbone of ours"):
        decode_backbone(damage(encode_backbone(small)), "server")


def test_flipped_bytes_are_refused_or_harmless(small: Backbone) -> None:
    content, dice = encode_backbone(small), random.Random(0)
    header = 8 + int.from_bytes(content[:8], "little")
    for _ in range(150):
        spoiled = bytearray(content)
        spoiled[dice.randrange(header)] = dice.randrange(256)
        try:
            loaded = decode_backbone(bytes(spoiled), "server")
        except VerificationFailed:
            continue
        assert all(tensor.isfinite().all() for tensor in stored_tensors(loaded.network).values())
