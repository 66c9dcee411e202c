"""Local generation of SPS and SPS+: every silo makes images of its own statistics; their union is the product.

Nothing but images leaves a silo. A silo that joins later is asked the same query as those before it: they repeat
their answers, which costs nothing, and the union grows.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

from silosynth.common.backbones import Backbone, encode_backbone
from silosynth.common.datasets.records import to_unit_range
from silosynth.common.errors import DataError
from silosynth.common.queries import LocalSynthesis
from silosynth.common.queries.local_synthesis import PIXEL_OFFSET, SOFT_LABEL_STEPS
from silosynth.common.schema import Schema
from silosynth.common.synthesis.local import settings_of
from silosynth.common.synthesis.sps_parameters import SpsParameters
from silosynth.server.recipes.base import Ask, Product, Steps, Task, United


def local_steps(task: Task, parameters: SpsParameters, backbone: Backbone, noise_multiplier: float) -> Steps:
    """`noise_multiplier` is that of all stages together."""
    file = encode_backbone(backbone)
    query = LocalSynthesis(
        schema=task.schema,
        noise_multiplier=noise_multiplier,
        backbone=hashlib.sha256(file).hexdigest(),
        questions=len(parameters.noises(noise_multiplier)),
        images_per_class=parameters.images_per_class,
        labels=parameters.labels,
        seed=task.seed,
        settings=settings_of(parameters),
    )
    united = yield Ask(query, {query.backbone: file})
    assert isinstance(united, United)
    return union(task.schema, united)


def union(schema: Schema, united: United) -> Product:
    """All images of the classes that each silo has records of, as its noisy counts show."""
    images, labels, soft_labels = list[npt.NDArray[np.float32]](), list[int](), list[npt.NDArray[np.float32]]()
    for part in united.parts:
        for label in np.flatnonzero(part["known"]):
            pixels = (part["images"][label].astype(np.int16) + PIXEL_OFFSET).astype(np.uint8)
            images.append(to_unit_range(pixels))
            labels += [int(label)] * len(pixels)
            if "soft_labels" in part:
                soft_labels.append(_probabilities(part["soft_labels"][label]))
    if not images:
        raise DataError("no silo has more records of any class than its noise may feign: ask with a larger epsilon")
    return Product(
        np.concatenate(images).reshape(-1, *schema.shape),
        np.array(labels, dtype=np.int64),
        np.concatenate(soft_labels) if soft_labels else None,
    )


def _probabilities(steps: npt.NDArray[np.integer]) -> npt.NDArray[np.float32]:
    """Rounded to steps they do not quite add up to 1 any more."""
    shares = np.maximum(steps, 0).astype(np.float32) / SOFT_LABEL_STEPS
    return np.asarray(shares / np.maximum(shares.sum(axis=1, keepdims=True), 1e-6), dtype=np.float32)
