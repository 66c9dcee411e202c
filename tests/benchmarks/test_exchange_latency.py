"""How long one tiny question takes over the exchange with five silos, beside the guards' own share of it.

Guards are real processes with real ledgers (a durable commit each); couriers run in threads.
"""

import os
import statistics
import sys
import time
from pathlib import Path

import grpc
import pytest
from support.asked_guards import asked_guards

from silosynth.common.datasets import load
from silosynth.common.partition import partition
from silosynth.common.queries import Mixtures, encode
from silosynth.common.schema import Schema
from silosynth.deploy.federation import LocalFederation
from silosynth.protos.v1 import guard_pb2
from silosynth.protos.v1.guard_pb2_grpc import GuardStub
from silosynth.server.assembly import Assembly

SILOS, QUESTIONS = 5, 60


@pytest.mark.benchmark
def test_round_trip_of_a_tiny_query(tmp_path: Path) -> None:
    train = load("digits", split="train")
    shards = [train.take(part) for part in partition("iid", train.labels, SILOS, seed=0)]
    with asked_guards(tmp_path, shards, mechanisms=["mixtures"]) as (federation, assembly):
        alone = _guard_alone(federation, train.schema)
        fresh, replayed = (_ask_all(assembly, train.schema) for _ in range(2))
    print(
        f"\nround trip, {SILOS} silos, {QUESTIONS} questions: median {1e3 * statistics.median(fresh):.1f} ms, worst "
        f"{1e3 * max(fresh):.1f} ms; one guard alone {1e3 * alone:.1f} ms; asked again (nothing to compute or store) "
        f"{1e3 * statistics.median(replayed):.1f} ms; ratio to {SILOS} guards sharing {os.cpu_count()} cores: "
        f"{statistics.median(fresh) / (alone * SILOS / (os.cpu_count() or 1)):.1f}",
        file=sys.stderr,
    )


def _ask_all(assembly: Assembly, schema: Schema) -> list[float]:
    seconds = []
    for number in range(QUESTIONS):
        begun = time.perf_counter()
        assembly.ask(tiny_query(schema, number))
        seconds.append(time.perf_counter() - begun)
    return seconds


def tiny_query(schema: Schema, number: int) -> Mixtures:
    """A question of its own for each number, all of the same cost, as the rounds of a recipe are."""
    return Mixtures(
        schema=schema,
        noise_multiplier=500.0,
        mixtures=1,
        sampling_probability=1.0,
        center=0.0,
        clip=1.0 + number / 1024,
        count_weight=1.0,
    )


def _guard_alone(federation: LocalFederation, schema: Schema) -> float:
    """The limit: one guard asked directly over its socket, no courier, no exchange."""
    with grpc.insecure_channel(federation.guard_address("silo-0")) as channel:
        guard, seconds = GuardStub(channel), []
        for number in range(QUESTIONS):
            query = encode(tiny_query(schema, QUESTIONS + number))
            begun = time.perf_counter()
            list(guard.Answer(guard_pb2.Question(query=query)))
            seconds.append(time.perf_counter() - begun)
    return statistics.median(seconds)
