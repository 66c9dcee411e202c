"""Networks that are trained once: a run that is started again finds them among its checkpoints.

Silos are asked about some of them by the digest of their weights. Trained anew, by another processor or with more
threads, they would be rounded otherwise: another question, to be paid for again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path

import safetensors.torch
from torch import Tensor, nn

from silosynth.common.backbones.storage import write_whole


def trained_once(
    network: nn.Module, checkpoints: Path | None, learned_from: Iterable[Tensor | object], train: Callable[[], None]
) -> None:
    """`learned_from`, with the network as it is now, is all that decides what training makes of it."""
    if checkpoints is None:
        train()
        return
    file = checkpoints / "networks" / f"{_identity(network, learned_from)}.safetensors"
    if file.exists():
        network.load_state_dict(safetensors.torch.load_file(file))
        return
    train()
    write_whole(file, safetensors.torch.save({name: part.contiguous() for name, part in network.state_dict().items()}))


def _identity(network: nn.Module, learned_from: Iterable[Tensor | object]) -> str:
    digest = hashlib.sha256()
    for part in (*network.state_dict().values(), *learned_from):
        digest.update(part.numpy().tobytes() if isinstance(part, Tensor) else repr(part).encode())
    return digest.hexdigest()
