"""Statistics as flat vectors: in a release, and as the file that carries a clipping centre to the silos."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import safetensors.torch
import torch
from torch import Tensor

from silosynth.common.errors import QueryError
from silosynth.common.queries import Moments
from silosynth.common.statistics import triangles
from silosynth.common.statistics.moments import Statistics

_KEY = "center"
_MAX_HEADER_BYTES = 1024


def flatten(statistics: Statistics) -> Tensor:
    """In the order of the query's `moments_layout`."""
    means, seconds, class_means, class_seconds = statistics
    parts = (means, triangles.pack(seconds), class_means, triangles.pack(class_seconds))
    return torch.cat([part.reshape(-1) for part in parts])


def unflatten(flat: npt.NDArray[np.float64], query: Moments) -> Statistics:
    """The opposite of `flatten`."""
    blocks = {name: torch.from_numpy(block) for name, block in query.moments_layout().split(flat).items()}
    return Statistics(
        blocks["means"],
        triangles.unpack(blocks["seconds"], query.global_dimension),
        blocks["class_means"],
        triangles.unpack(blocks["class_seconds"], query.class_dimension),
    )


def split(released: npt.NDArray[np.float64], query: Moments) -> tuple[Statistics, Tensor]:
    """The sums in a release (or in a sum of releases), and how many records each class has: noisy, maybe negative."""
    size = query.moments_layout().size
    counts = torch.from_numpy(released[size:]) / (query.count_step() * query.grid())
    return unflatten(released[:size], query), counts


def encode_center(means: Statistics) -> bytes:
    values = flatten(means).detach().cpu().float().clamp(-1, 1)
    content: bytes = safetensors.torch.save({_KEY: values})
    return content


def decode_center(content: bytes, query: Moments) -> Statistics:
    """From a server that need not be trusted: a centre far out would make differences lose their last places."""
    size = query.moments_layout().size
    if len(content) > 4 * size + _MAX_HEADER_BYTES:
        raise QueryError(f"a centre of {len(content)} bytes is too large for a query of {size} moments")
    try:
        values = safetensors.torch.load(content)[_KEY]
    except Exception:  # the reader fails on a damaged file in more ways than can be listed
        raise QueryError("the artifact named as centre is not one") from None
    if values.dtype != torch.float32 or values.shape != (size,) or not (values.abs() <= 1).all():
        raise QueryError(f"the centre is not {size} float32 numbers in [-1, 1]")
    return unflatten(values.double().numpy(), query)
