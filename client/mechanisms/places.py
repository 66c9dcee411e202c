"""Batches in which what is computed of a record is its own to the last bit, wherever among others it stands.

Whoever chooses a network may choose it so that rounding errors decide everything, and a record that is left out moves
all others by a place. Which rows of a batch a processor rounds otherwise depends on its kernels, on threads and on
shapes, not on what is computed. So all batches have one size, their last places stay blank, and whether the others are
alike is tried on this machine for each kind of computation, on weights and records of our own: a server's might hide
it. Where no size will do, records are taken one by one, each at the beginning of memory of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator

import torch
from torch import Tensor

Rows = Callable[..., Tensor]
"""From a batch of records, and of what belongs to each, to a row for each, in single precision."""

Samples = Callable[[int], tuple[Tensor, ...]]
"""So many records of our own, and what belongs to each."""

BLANKS = 8
_SIZES = (256, 192, 128, 96, 64, 32)
_SHIFTS = range(1, 13)  # each sets every record against itself at another place
_chosen: dict[Hashable, int] = {}


def batch_size(kind: Hashable, largest: int, trial: Callable[[], tuple[Rows, Samples]]) -> int:
    """The largest size, within what memory allows, whose places are alike.

    `kind` is all that decides on kernels but for threads; the trial is made once for each.
    """
    key = (kind, largest, torch.get_num_threads())
    if key not in _chosen:
        rows, samples = trial()
        fitting = (size for size in _SIZES if size <= largest)
        _chosen[key] = next((size for size in fitting if _alike(rows, size, samples(size - BLANKS))), 1)
    return _chosen[key]


def in_batches(rows: Rows, size: int, *inputs: Tensor) -> Iterator[Tensor]:
    """A row for each record. Even if there is none a batch is computed: memory it lacks must not tell."""
    held = held_by(size)
    for start in range(0, max(len(inputs[0]), 1), held):
        yield _filled(rows, size, *(part[start : start + held] for part in inputs))


def held_by(size: int) -> int:
    """Records in a batch of this size."""
    return max(size - BLANKS, 1)


def without_gradients(rows: Rows, device: torch.device) -> Rows:
    """Computed on the device, from and to main memory."""

    @torch.inference_mode()
    def there(*inputs: Tensor) -> Tensor:
        return rows(*(part.to(device) for part in inputs)).cpu()

    return there


def filled(size: int, *parts: Tensor) -> list[Tensor]:
    """A batch of this size, blanks last, in new memory, laid out in one way: both may decide on the kernel."""
    batch = [part.new_zeros(size, *part.shape[1:]) for part in parts]
    for places, part in zip(batch, parts, strict=True):
        places[: len(part)] = part
    return batch


def _filled(rows: Rows, size: int, *parts: Tensor) -> Tensor:
    return rows(*filled(size, *parts))[: len(parts[0])]


def _alike(rows: Rows, size: int, records: tuple[Tensor, ...]) -> bool:
    found = _bits(_filled(rows, size, *records))
    for shift in _SHIFTS:
        moved = _bits(_filled(rows, size, *(part.roll(shift, 0) for part in records)))
        if not torch.equal(moved.roll(-shift, 0), found):
            return False
    return True


def _bits(rows: Tensor) -> Tensor:
    """NaN equals itself then, and 0 is not -0."""
    return rows.contiguous().view(torch.int32)
