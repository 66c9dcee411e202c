"""Where teachers are kept: in the guard's memory, and in its private folder for when it starts again. None leaves."""

from __future__ import annotations

import contextlib
import hashlib
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from silosynth.client.guard.mechanism import Bench
from silosynth.client.guard.private_file import create_private_file
from silosynth.client.mechanisms.teacher_training import train_teachers
from silosynth.common.datasets.records import Records
from silosynth.common.errors import SiloUnavailable
from silosynth.common.queries import TeacherAnswers, encode

_KEPT = 8  # sets of teachers, the last ones used

_known: OrderedDict[str, Tensor] = OrderedDict()


def teachers_of(query: TeacherAnswers, records: Records, bench: Bench) -> Tensor:
    """Their weights, one row a teacher; trained the first time they are asked anything."""
    name = _name(query, records)
    if name not in _known:
        _known[name] = _stored_or_trained(query, records, bench, name)
    _known.move_to_end(name)
    while len(_known) > _KEPT:
        _known.popitem(last=False)
    return _known[name]


def _name(query: TeacherAnswers, records: Records) -> str:
    """The same whatever these teachers are asked; another one when the records change."""
    whatever = replace(query, inputs="0" * 64, number=1, noise_multiplier=0.0)
    digest = hashlib.sha256(encode(replace(whatever, answers="gradients", kept=2, other_weight=0.0)))
    digest.update(np.ascontiguousarray(records.features).data)
    digest.update(np.ascontiguousarray(records.labels).data)
    return digest.hexdigest()


def _stored_or_trained(query: TeacherAnswers, records: Records, bench: Bench, name: str) -> Tensor:
    if bench.keep is None:
        return train_teachers(query, records, bench)
    with contextlib.suppress(FileNotFoundError, SafetensorError, KeyError):  # a damaged file is as good as none
        return cast(Tensor, safetensors.torch.load((bench.keep / name).read_bytes())["teachers"])
    trained = train_teachers(query, records, bench)
    try:
        (bench.keep / name).unlink(missing_ok=True)
        create_private_file(bench.keep / name, safetensors.torch.save({"teachers": trained}))
        _forget_older(bench.keep)
    except OSError as error:
        raise SiloUnavailable(f"the teachers cannot be kept: {error.strerror}; nothing was charged") from error
    return trained


def _forget_older(folder: Path) -> None:
    by_age = sorted(folder.iterdir(), key=lambda file: file.stat().st_mtime_ns)
    for file in by_age[:-_KEPT]:
        file.unlink()
