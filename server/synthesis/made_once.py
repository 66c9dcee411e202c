"""What is made once in a run: started again, it is found among the checkpoints.

Silos are asked about some of it by its digest. Made anew by another processor it would be rounded otherwise: another
question, to be paid for again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path

import safetensors.torch
from torch import Tensor, nn

from silosynth.common.backbones.storage import write_whole

_DIGEST_BYTES = hashlib.sha256().digest_size


def made_once(
    checkpoints: Path | None, made_of: Iterable[Tensor | object], make: Callable[[], dict[str, Tensor]]
) -> dict[str, Tensor]:
    """`made_of` is all that decides what `make` makes. A file that was damaged meanwhile is as good as none."""
    if checkpoints is None:
        return make()
    file = checkpoints / "made" / f"{_identity(made_of)}.safetensors"
    content = file.read_bytes() if file.exists() else b""
    digest, tensors = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    if not content or hashlib.sha256(tensors).digest() != digest:
        tensors = safetensors.torch.save({name: part.cpu().contiguous() for name, part in make().items()})
        write_whole(file, hashlib.sha256(tensors).digest() + tensors)
    made: dict[str, Tensor] = safetensors.torch.load(tensors)
    return made


def trained_once(
    network: nn.Module, checkpoints: Path | None, learned_from: Iterable[Tensor | object], train: Callable[[], None]
) -> None:
    """`learned_from`, with the network as it is now, is all that decides what training makes of it."""

    def make() -> dict[str, Tensor]:
        train()
        return network.state_dict()

    network.load_state_dict(made_once(checkpoints, (*network.state_dict().values(), *learned_from), make))


def _identity(parts: Iterable[Tensor | object]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, Tensor):
            digest.update(f"{tuple(part.shape)} {part.dtype}\n".encode() + part.cpu().numpy().tobytes())
        else:
            digest.update(f"{part!r}\n".encode())
    return digest.hexdigest()
