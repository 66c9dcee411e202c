"""What a silo makes itself is private because it is made of nothing but private answers, and costs what these cost.

For any settings: the queries it asks itself are those it announced, at the noise it announced; no record, however
hostile, moves any exact answer by more than that answer's sensitivity; and given the noisy answers, the images do not
depend on the records at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.entropies import SeededEntropy
from support.guards import bench
from support.local_images import BACKBONE, FILE, local_query, spatial_query
from support.toy_images import TOY, toy_records

from silosynth.client.guard.noise import add_noise
from silosynth.client.mechanisms import MECHANISMS
from silosynth.common.datasets import Records
from silosynth.common.events import within
from silosynth.common.queries import LocalSynthesis, Query

Integers = np.ndarray
NOBODY = toy_records((0, 0, 0))


class SiloWithNeighbours:
    """Answers from the first dataset, with noise, and checks what the others would have answered."""

    def __init__(self, *datasets: Records) -> None:
        self.datasets, self.entropy = datasets, SeededEntropy()
        self.asked: list[Query] = []
        self.answers: list[Integers] = []

    def ask(self, query: Query, artifacts: Mapping[str, bytes]) -> Integers:
        shelf = {BACKBONE: FILE, **artifacts}
        exact, *neighbours = (
            MECHANISMS[query.mechanism](query, records, bench(self.entropy, artifacts=shelf))
            for records in self.datasets
        )
        allowed = (Fraction(query.plan().sensitivity) / Fraction(query.plan().grid)) ** 2
        for other in neighbours:
            assert sum(step * step for step in (other - exact).tolist()) <= allowed
        self.asked.append(query)
        self.answers.append(add_noise(exact, query.plan(), self.entropy))
        return self.answers[-1]


def made(query: LocalSynthesis, ask: object, records: Records = NOBODY) -> Integers:
    answering = replace(bench(SeededEntropy(), artifacts={BACKBONE: FILE}), ask=ask, silo="a")
    return MECHANISMS[query.mechanism](query, records, answering)


def pictures() -> st.SearchStrategy[np.ndarray]:
    return st.sampled_from([-1.0, 1.0, 0.0, 3e38, 1e-40]).map(lambda shade: np.full((1, 8, 8, 1), shade, np.float32))


PAPER = st.builds(
    local_query,
    noise_multiplier=st.sampled_from([0.0, 1.0, 30.0]),
    stages=st.integers(1, 3),
    seed=st.integers(0, 9),
    images_per_class=st.integers(1, 3),
    steps=st.integers(1, 2),
    class_layers=st.integers(1, 3),
    global_dimension=st.integers(1, 6),
    count_weight=st.sampled_from([0.15, 1.0]),
)
SPATIAL = st.builds(
    lambda **chosen: replace(spatial_query(**chosen), noise_multiplier=chosen["noise_multiplier"]),
    noise_multiplier=st.sampled_from([0.0, 1.0, 30.0]),
    stages=st.integers(1, 2),
    seed=st.integers(0, 9),
)
QUERIES = PAPER | SPATIAL


@settings(max_examples=12, deadline=None)
@given(QUERIES, pictures(), st.integers(0, 2), st.integers(0, 20))
def test_the_composition_costs_what_it_announces(
    query: LocalSynthesis, picture: np.ndarray, label: int, left_out: int
) -> None:
    records = toy_records((7, 7, 7))
    more = Records(np.concatenate([records.features, picture]), np.append(records.labels, label), TOY)
    fewer = records.take(np.delete(np.arange(len(records)), left_out))
    silo = SiloWithNeighbours(records, more, fewer)
    values = made(query, silo.ask)
    assert len(silo.asked) == query.questions
    assert within([inner.event() for inner in silo.asked], query.event())
    assert values.shape == (query.layout().size,)
    replayed = iter(silo.answers)
    assert (made(query, lambda inner, artifacts: next(replayed), more) == values).all()
