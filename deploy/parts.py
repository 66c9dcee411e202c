"""Records for simulations: a part that silos hold, and a public part to test with."""

from __future__ import annotations

import numpy as np

from silosynth.common.datasets import Records, load
from silosynth.common.errors import OneSetOnly

_HELD_OUT = 6  # one of so many records, where a source is one set


def held_and_public(where: str, classes: int | None) -> tuple[Records, Records]:
    """The source's own training and test part, else five sixths and a sixth of it."""
    said = {} if classes is None else {"classes": classes}
    try:
        return load(where, split="train", **said), load(where, split="test", **said)
    except OneSetOnly:
        whole = load(where, **said)
    order = np.random.default_rng(0).permutation(len(whole))
    cut = len(whole) // _HELD_OUT
    return whole.take(np.sort(order[cut:])), whole.take(np.sort(order[:cut]))
