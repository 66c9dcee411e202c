"""Images made in the silo (SPS and SPS+, local generation).

Released: images by class in 8 bits, for each class 1 if the noisy counts show records of it, perhaps soft labels.
Neighbours: datasets of one silo that differ by one record added or removed.
Sensitivity: 0, given the noisy answers to inner queries (moments or sufficient statistics, whose files state theirs):
no record is seen here. The guard has charged each of these answers before it is handed over, and adds its noise once.
Event: all inner queries are Gaussian mechanisms; together they cost no more than one of the query's noise multiplier.
The images are post-processing of them.
Reference: "Summarize, privatize, synthesize" (SPS), federated with local generation; methods.md, section 1.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

from silosynth.client.guard.mechanism import Bench
from silosynth.client.mechanisms.public_networks import stored_network
from silosynth.common.datasets.records import Records, to_bytes_range
from silosynth.common.errors import QueryError
from silosynth.common.queries import LocalSynthesis
from silosynth.common.queries.local_synthesis import PIXEL_OFFSET, SOFT_LABEL_STEPS
from silosynth.common.synthesis.engine import Report
from silosynth.common.synthesis.known_classes import NoisyCounts, known_classes
from silosynth.common.synthesis.local import parameters_of
from silosynth.common.synthesis.sps import Answer, Job, Synthesized, converse

Integers = npt.NDArray[np.int64]

MOST_STEPS = 20_000  # of one image: a server must not keep a silo busy for ever


def local_synthesis(query: LocalSynthesis, records: Records, bench: Bench) -> Integers:
    made, known = _conversation(query, bench)
    classes, each = query.schema.classes, query.images_per_class
    order = np.argsort(made.labels.numpy(), kind="stable")
    if made.labels[order].tolist() != np.repeat(np.arange(classes), each).tolist():
        raise QueryError(f"these settings make other images than {each} of each of {classes} classes")
    pixels = to_bytes_range(made.images.permute(0, 2, 3, 1).numpy())[order].astype(np.int64) - PIXEL_OFFSET
    parts = [pixels.reshape(classes, -1) * known[:, None], known]
    if made.soft_labels is not None:
        soft = np.rint(made.soft_labels.numpy()[order] * SOFT_LABEL_STEPS).astype(np.int64)
        parts.append(soft.reshape(classes, -1) * known[:, None])
    return np.concatenate([part.reshape(-1) for part in parts])


def _conversation(query: LocalSynthesis, bench: Bench) -> tuple[Synthesized, Integers]:
    """The silo talks with itself; what was made, and which classes the answers show records of."""
    parameters = parameters_of(query, bench.device)
    if parameters.steps > MOST_STEPS:
        raise QueryError(f"{parameters.steps} steps are more than the {MOST_STEPS} that a silo makes")
    job = Job(query.schema, query.noise_multiplier, own_seed(query.seed, bench.silo), _told(bench), bench.scratch)
    conversation = converse(job, parameters, stored_network(query.backbone, bench))
    shown = list[NoisyCounts]()
    question = next(conversation)
    while True:
        plan = question.query.plan()
        values = np.asarray(bench.ask(question.query, question.artifacts) * plan.grid, dtype=np.float64)
        shown.append(NoisyCounts.of(question.query, plan.layout.split(values)["counts"], plan.noise_std))
        try:
            question = conversation.send(Answer(values, plan.noise_std))
        except StopIteration as stop:
            return stop.value, known_classes(shown).astype(np.int64)


def _told(bench: Bench) -> Report:
    return lambda share, loss, sketch: bench.report(share)


def own_seed(seed: int, silo: str) -> int:
    """Silos that started from the same noise would make images too much alike."""
    mixed = hashlib.sha256(f"{seed} {silo}".encode()).digest()
    return int.from_bytes(mixed[:6], "little")
