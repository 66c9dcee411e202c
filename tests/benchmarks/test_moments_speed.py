"""What taking moments costs beside the bare network, and that its memory does not grow with the number of records."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from support.entropies import ScriptedEntropy
from support.guards import bench
from support.moments import LAYERS, SHELF, moments_query, shelve

from silosynth.client.mechanisms.moments import moments
from silosynth.client.mechanisms.whole_moments import LARGEST_BATCH
from silosynth.common.backbones import backbone, encode_backbone
from silosynth.common.datasets.records import Records
from silosynth.common.queries import Moments
from silosynth.common.schema import Schema

SCHEMA = Schema((28, 28, 1), 10)
RECORDS = 16 * LARGEST_BATCH
PSEUDO_CLASSES = {"pseudo_classes": 40, "classes_per_pseudo_class": 2}


def some_records(count: int) -> Records:
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 256, (count, *SCHEMA.shape), dtype=np.uint8)
    return Records(pixels, generator.integers(0, SCHEMA.classes, count), SCHEMA)


def query_of(network: str, layers: int, **changes: Any) -> Moments:
    digest = shelve(encode_backbone(backbone(network, 1)))
    return moments_query(schema=SCHEMA, backbone=digest, layers=layers, **changes)


def images_per_second(work: Callable[[], object], rounds: int = 4) -> float:
    """Of the fastest round: others may be using this machine."""
    times = []
    for _ in range(rounds):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return RECORDS / min(times)


@torch.inference_mode()
def forward(network: torch.nn.Module, images: torch.Tensor) -> None:
    for _ in range(RECORDS // LARGEST_BATCH):
        network(images)


@pytest.mark.benchmark
@pytest.mark.parametrize(
    ("name", "layers", "dimension", "changes"),
    [
        ("residual-24", LAYERS, 32, {}),
        ("residual-24", LAYERS, 64, {}),
        ("residual-24", LAYERS, 64, PSEUDO_CLASSES),
        ("residual-24", LAYERS, 128, {}),
        ("residual-16", 13, 64, {}),
    ],
)
def test_moments_beside_the_bare_network(name: str, layers: int, dimension: int, changes: dict[str, int]) -> None:
    query = query_of(name, layers, global_dimension=dimension, class_dimension=dimension, **changes)
    network, records = backbone(name, 1).network, some_records(RECORDS)
    planes = torch.rand(LARGEST_BATCH, 1, *SCHEMA.shape[:2])
    interleaved = torch.rand(LARGEST_BATCH, *SCHEMA.shape).permute(0, 3, 1, 2)
    whole = images_per_second(lambda: moments(query, records, bench(ScriptedEntropy(), artifacts=SHELF)))
    usual, fastest = (images_per_second(lambda shown=shown: forward(network, shown)) for shown in (planes, interleaved))
    print(f"\n{name}, 28x28, D_G = D_C = {dimension}, {query.groups} groups: {whole:,.0f} images a CPU second;")
    print(f"bare forward of images by planes {usual:,.0f} ({whole / usual:.0%}), by pixels {fastest:,.0f}", end=" ")
    print(f"({whole / fastest:.0%}), which is how records come")


@pytest.mark.benchmark
def test_memory_does_not_grow_with_the_number_of_records() -> None:
    """Beyond the records themselves, which are there anyway."""
    script = (
        "import resource, sys; import test_moments_speed as s;"
        "records = s.some_records(int(sys.argv[1]));"
        "query = s.query_of('residual-24', s.LAYERS, global_dimension=64, class_dimension=64);"
        "s.moments(query, records, s.bench(s.ScriptedEntropy(), artifacts=s.SHELF));"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024 - (records.features.nbytes >> 20))"
    )
    peaks = [
        int(subprocess.run([sys.executable, "-c", script, str(count)], **_output()).stdout) for count in (1024, 8192)
    ]
    print(f"\npeak memory without records: {peaks[0]} MB for 1,024 records, {peaks[1]} MB for 8,192")
    assert peaks[1] <= 1.1 * peaks[0]


def _output() -> dict[str, Any]:
    folders = [folder for folder in sys.path if folder]
    return {"capture_output": True, "text": True, "check": True, "env": {"PYTHONPATH": ":".join(folders)}}
