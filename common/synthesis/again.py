"""More images from a release's own statistics, by anyone, at any time: post-processing, free of privacy cost."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from silosynth.common.datasets.records import to_bytes_range
from silosynth.common.synthesis.conversation import Job, Synthesized
from silosynth.common.synthesis.engine import Report
from silosynth.common.synthesis.paper_sps import paper_images
from silosynth.common.synthesis.spatial_sps import spatial_images
from silosynth.common.synthesis.stage_release import Arrays, from_models

Bytes = npt.NDArray[np.uint8]
SoftLabels = npt.NDArray[np.float32]


def synthesize_again(
    models: Mapping[str, Arrays], images_per_class: int, seed: int, report: Report
) -> tuple[Bytes, npt.NDArray[np.int64], SoftLabels | None]:
    """Images (count, height, width, channels), labels, and soft labels where the release has them."""
    backbone, parameters, releases = from_models(models)
    job = Job(releases[0].query.schema, 0.0, seed, report)
    make = spatial_images if parameters.statistics == "spatial" else paper_images
    made: Synthesized = make(
        job, parameters.model_copy(update={"images_per_class": images_per_class}), backbone, releases
    )
    images = to_bytes_range(made.images.permute(0, 2, 3, 1).contiguous().numpy())
    return images, made.labels.numpy(), None if made.soft_labels is None else made.soft_labels.numpy()
