from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from silosynth.common.partition import partition

KINDS = st.one_of(
    st.sampled_from(["iid", "classes"]),
    st.floats(1e-3, 1e6).map(lambda alpha: f"dirichlet:{alpha}"),
    st.floats(0, 50).map(lambda exponent: f"powerlaw:{exponent}"),
)
LABELS = st.lists(st.integers(0, 12), max_size=80).map(lambda labels: np.array(labels, dtype=np.int64))


@settings(max_examples=300, deadline=None)
@given(KINDS, LABELS, st.integers(1, 40), st.integers(0, 2**32))
def test_disjoint_covering_never_needlessly_empty_and_repeatable(
    kind: str, labels: np.ndarray, silos: int, seed: int
) -> None:
    parts = partition(kind, labels, silos, seed)
    assert len(parts) == silos
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(labels)))
    assert all((np.diff(part) > 0).all() for part in parts)
    assert sum(len(part) > 0 for part in parts) == min(silos, len(labels))
    assert all(np.array_equal(a, b) for a, b in zip(parts, partition(kind, labels, silos, seed), strict=True))


@settings(max_examples=100, deadline=None)
@given(LABELS, st.integers(13, 40), st.integers(0, 1000))
def test_enough_silos_hold_one_class_each(labels: np.ndarray, silos: int, seed: int) -> None:
    assert all(len(np.unique(labels[part])) <= 1 for part in partition("classes", labels, silos, seed))
