"""Training of teachers on the records, without noise: what they say must be made private, never shown as it is.

One teacher on all records, or one on each of several disjoint parts. Nothing of one part's teacher depends on a record
of another part: records are assigned by a hash of their own bytes, and looked at and trained on by part.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from silosynth.client.guard.mechanism import Bench
from silosynth.client.mechanisms.exact_sums import report_steps
from silosynth.client.mechanisms.public_networks import view_for
from silosynth.common.datasets.records import Records
from silosynth.common.networks.weights import flat_weights
from silosynth.common.procedural.dice import Dice
from silosynth.common.queries import TeacherAnswers
from silosynth.common.teaching.views import draw_classifier

_BATCH = 128
_LEARNING_RATE = 2e-3
_WEIGHT_DECAY = 1e-4
_CHECKED_EVERY = 50  # steps
_PATIENCE = 4  # checks that find nothing better
_HELD_OUT = 8  # every so-many-th record of a part tells when to stop; where there are too few, none does


def train_teachers(query: TeacherAnswers, records: Records, bench: Bench) -> Tensor:
    """Their weights, one row a part. A part without records has a teacher who finds all classes equally likely."""
    view, assigned = view_for(query, bench), parts_of(records, query.seed, query.parts)
    teachers = list[Tensor]()
    for part in range(query.parts):
        own = records.take(np.flatnonzero(assigned == part))
        classifier = draw_classifier(query.network, query.schema, query.features, query.seed)
        seen, labels = view.of_records(own.flat()).cpu(), torch.from_numpy(own.labels)
        teachers.append(flat_weights(taught(classifier, seen, labels, query.steps, Dice(query.seed, part))))
        report_steps(bench.report, part, part + 1, query.parts)
    return torch.stack(teachers)


def parts_of(records: Records, seed: int, parts: int) -> npt.NDArray[np.int64]:
    """The part of every record, by its own bytes alone: who else is there does not matter."""
    labelled = zip(records.features, records.labels, strict=True)
    hashes = hashes_of((record.tobytes() + int(label).to_bytes(8, "little") for record, label in labelled), seed)
    return (hashes % np.uint64(parts)).astype(np.int64)


def hashes_of(contents: Iterable[bytes], seed: int) -> npt.NDArray[np.uint64]:
    """Of each by itself."""
    key = seed.to_bytes(8, "little")
    digests = (hashlib.blake2b(content, key=key, digest_size=8).digest() for content in contents)
    return np.frombuffer(b"".join(digests), dtype="<u8")


def taught(classifier: nn.Module, seen: Tensor, labels: Tensor, most_steps: int, dice: Dice) -> nn.Module:
    """The best of those looked at on the way, judged by records held out; without records, the classifier as it is."""
    if not len(labels):
        return classifier
    judges = torch.arange(len(labels)) % _HELD_OUT == _HELD_OUT - 1
    learned, learned_labels = seen[~judges], labels[~judges]
    optimizer = torch.optim.AdamW(classifier.parameters(), _LEARNING_RATE, weight_decay=_WEIGHT_DECAY)
    best, least, since = classifier, float("inf"), 0
    for step in range(1, most_steps + 1):
        drawn = dice.integers(len(learned_labels), min(_BATCH, len(learned_labels)))
        loss = F.cross_entropy(classifier(learned[drawn]), learned_labels[drawn])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if judges.any() and step % _CHECKED_EVERY == 0:
            found = _loss(classifier, seen[judges], labels[judges])
            best, least, since = (copy.deepcopy(classifier), found, 0) if found < least else (best, least, since + 1)
            if since == _PATIENCE:
                break
    return best


@torch.no_grad()
def _loss(classifier: nn.Module, seen: Tensor, labels: Tensor) -> float:
    return float(F.cross_entropy(classifier(seen), labels))
